#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bmojo/eval/language_model.h"

namespace bmojo::eval {

inline constexpr int64_t kLogitsAtOnce = int64_t{1} << 23;  // floats: 32 MB

// A token's hidden state [D], and the token that is due behind it.
struct Due {
  const float* hidden = nullptr;
  int64_t id = 0;
};

// Of each: ln p of the token that was due, NaN where logits were not finite, and the likeliest one.
struct DueScores {
  std::vector<float> own;
  std::vector<int64_t> best;
};

// In blocks of bounded memory.
DueScores score_due(const LanguageModel& model, std::span<const Due> due);

}  // namespace bmojo::eval
