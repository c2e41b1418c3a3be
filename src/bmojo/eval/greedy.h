#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bmojo/eval/generate.h"

namespace bmojo::eval {

// When a text ends, but for the end-of-sequence token.
struct Until {
  int64_t max_tokens = 32;
  std::vector<std::string> stop = {};  // they are not part of it
  std::vector<int64_t> ends = {};      // ids that end it as the end-of-sequence token does
};

// Goes on with the likeliest tokens in several texts at once, a token each at a time. Each is as
// generate() writes it alone at temperature 0. RunError where logits are not finite.
std::vector<Generated> write_greedily(const LanguageModel& model, std::span<Continuation> from,
                                      const Until& until, const data::Tokenizer& tokenizer,
                                      const std::function<void()>& between_steps = {});

}  // namespace bmojo::eval
