#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "bmojo/eval/language_model.h"

namespace bmojo::eval {

using Ids = std::vector<int64_t>;

// Of each token of a text after the first: the log-probability it had given those before it, and
// the most likely token in its place with its own. Entry i is of token i + 1.
struct TokenScores {
  std::vector<float> own, top;
  std::vector<int64_t> argmax;
};

struct ScoreOptions {
  int64_t chunk = 512;  // tokens of a text that are fed at once
  // Told of the logits [count, V] that stand after tokens [from, from + count) of a text.
  std::function<void(int64_t text, int64_t from, int64_t count, const float* logits)> on_logits =
      {};
  std::function<void()> between_chunks = {};
};

// The texts advance together, each from an empty memory. RunError where logits are not finite.
std::vector<TokenScores> score(const LanguageModel& model, std::span<const Ids> texts,
                               const ScoreOptions& options);

}  // namespace bmojo::eval
