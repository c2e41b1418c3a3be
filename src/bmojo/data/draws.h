#pragma once

#include <cstdint>
#include <vector>

#include "bmojo/base/random.h"

// What the sequences of tasks are drawn by.

namespace bmojo::data {

// Uniform on low … high-1.
inline int64_t draw_from(base::Random& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random.below(static_cast<uint64_t>(high - low)));
}

// `count` different numbers of low … high-1 in random order, at a cost that depends on count alone.
std::vector<int64_t> draw_distinct(base::Random& random, int64_t count, int64_t low, int64_t high);

}  // namespace bmojo::data
