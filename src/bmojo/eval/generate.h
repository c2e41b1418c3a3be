#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bmojo/data/tokenizer.h"
#include "bmojo/eval/language_model.h"
#include "bmojo/kernels/sample.h"

namespace bmojo::eval {

// The most that can be asked for.
inline constexpr int64_t kMaxTokens = int64_t{1} << 40, kMaxLogprobs = int64_t{1} << 20;

// What is written, and when it ends.
struct GenerateOptions {
  int64_t max_tokens = 32;
  kernels::Sampling sampling;
  std::vector<std::string> stop;   // texts that end it; they are not part of the result
  std::vector<int64_t> ends = {};  // ids that end it as the end-of-sequence token does
  bool ignore_eos = false;
  int64_t num_logprobs = 0;               // alternatives to tell of each token
  std::function<bool()> is_stopped = {};  // asked before each token: true ends the text there
  bool goes_on = false;  // text that is held back at the end stays with the continuation
};

struct Alternative {
  int64_t id;
  double logprob;
};

struct Generated {
  std::vector<int64_t> ids;
  std::vector<double> logprobs;                        // of each, before any filter
  std::vector<std::vector<Alternative>> alternatives;  // of each, the likeliest first
  std::string text;                                    // where there is a tokenizer
  std::string finish = "length";                       // or "eos", "stop"
};

// The id that comes next, which `from` has not read yet; with a tokenizer, one that it has. Draws
// are numbered by the position they fill, so a resumed text goes on with the same ones. RunError
// where the logits are not finite.
int64_t draw(const Continuation& from, const kernels::Sampling& how,
             const data::Tokenizer* tokenizer, kernels::SamplingScratch& scratch);

// Goes on behind a prompt (prompt.h); the same seed (from.seed) gives the same text on every
// machine. `tokenizer` may be null: then there is no text, and nothing to stop at. `on_text`
// receives text as soon as it is certain, whole characters that no stop text can take back. Throws
// RunError where the logits are not finite.
Generated generate(const LanguageModel& model, Continuation& from, const GenerateOptions& options,
                   const data::Tokenizer* tokenizer,
                   const std::function<void(std::string_view)>& on_text = {});

}  // namespace bmojo::eval
