#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bmojo/data/tokenizer.h"
#include "bmojo/eval/language_model.h"

namespace bmojo::eval {

// The last tokens that the repetition penalty looks at.
inline constexpr int64_t kRecentTokens = 64;
// ids come behind those that are recent.
void remember(std::vector<int64_t>& recent, std::span<const int64_t> ids);

Continuation begin(const LanguageModel& model);

// Tokens that a text goes on with.
struct Prompt {
  Continuation* to = nullptr;
  std::span<const int64_t> ids;
  float* every = nullptr;  // where wanted: the logits after each of them [n, V]
};

// Reads on in all texts at once, in parts of bounded size: memory does not grow with their length.
// Error, before anything is read, where an id is not of the vocabulary. is_stopped is asked behind
// each part: true ends the reading there, and each text stands as if it had ended with what was
// read.
void read_together(const LanguageModel& model, std::span<const Prompt> prompts,
                   const std::function<bool()>& is_stopped = {});
// One text.
void read_prompt(const LanguageModel& model, std::span<const int64_t> ids, Continuation& from,
                 const std::function<bool()>& is_stopped = {});

// Error, naming `subject`, where a text is not UTF-8.
void require_utf8(std::string_view text, const std::string& subject);

// Puts the token that begins a document before the ids of one, for tokenizers that have such a
// token.
void mark_beginning(const model::Config& config, const data::Tokenizer& tokenizer,
                    std::vector<int64_t>& ids);

// The ids of a text that begins a document. `subject` names it in errors: it must be UTF-8, unless
// tokens are bytes, and not empty.
std::vector<int64_t> prompt_ids(const model::Config& config, const data::Tokenizer& tokenizer,
                                std::string_view text, const std::string& subject);
// The same where a document goes on.
std::vector<int64_t> further_ids(const data::Tokenizer& tokenizer, std::string_view text,
                                 const std::string& subject);

}  // namespace bmojo::eval
