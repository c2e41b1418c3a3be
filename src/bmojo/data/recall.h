#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "bmojo/base/random.h"

// What the tasks of associative recall share: keys come from the lower half of the vocabulary (0 is
// left for padding), values from the upper half, and every key is asked once behind all pairs.

namespace bmojo::data {

// Question slots, without replacement: slot i of 0 … num_slots-1 with probability ∝ (i + 1)^(a -
// 1), a = 0.01. Most questions come soon, some late.
std::vector<int64_t> draw_slots(base::Random& random, int64_t count, int64_t num_slots);

// What a sequence must hold; `needed` grows with both of its arguments.
struct LengthRule {
  std::string_view task, formula;  // "4 x pairs + gap"
  int64_t length, pairs, gap;
  std::function<int64_t(int64_t pairs, int64_t gap)> needed;
};

// Error with the lengths, pairs and gaps that would fit.
void require_length(const LengthRule& rule);

}  // namespace bmojo::data
