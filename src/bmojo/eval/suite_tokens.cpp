#include "bmojo/eval/suite_tokens.h"

#include <algorithm>

#include "bmojo/base/error.h"
#include "bmojo/data/python_text.h"
#include "bmojo/eval/prompt.h"

namespace bmojo::eval {
namespace {

int64_t first_token(const model::Config& config, const data::Tokenizer& tokenizer) {
  if (config.bos_token_id >= 0) return config.bos_token_id;
  return config.eos_token_id >= 0 ? config.eos_token_id : tokenizer.end_of_document();
}

Asked question(const std::string& before, const std::string& continuation,
               const model::Config& config, const data::Tokenizer& tokenizer,
               const std::string& where) {
  // White space between the two belongs to the word behind it.
  const auto context = data::strip_end(before);
  const auto whole = before + continuation;
  Asked asked;
  if (context.empty()) {
    asked.continuation = further_ids(tokenizer, whole, where);
    asked.context = {first_token(config, tokenizer)};
    if (!asked.continuation.empty() && asked.continuation[0] == asked.context[0])
      asked.continuation.erase(asked.continuation.begin());
  } else {
    asked.context = prompt_ids(config, tokenizer, context, where);
    const auto ids = prompt_ids(config, tokenizer, whole, where);
    const auto count = std::min(asked.context.size(), ids.size());
    asked.continuation.assign(ids.begin() + static_cast<int64_t>(count), ids.end());
  }
  base::require(!asked.context.empty(), "{}: context must have a token, got none", where);
  base::require(!asked.continuation.empty(),
                "{}: continuation must add a token to its context, got none", where);
  return asked;
}

// Every token is asked for once: the first window's behind `first`, the others' behind the token
// before them. The last window is filled up with what stands before it.
std::vector<Asked> windows(const Ids& ids, int64_t first, int64_t max_length) {
  const int64_t length = std::ssize(ids), window = max_length == 0 ? length : max_length;
  std::vector<Asked> out;
  for (int64_t from = 0; from < length; from += window) {
    const int64_t to = std::min(from + window, length);
    const auto begin = ids.begin() + std::max<int64_t>(0, to - window - 1);
    Ids context = from == 0 ? Ids{first} : Ids(begin, ids.begin() + from);
    out.push_back({std::move(context), {ids.begin() + from, ids.begin() + to}});
  }
  return out;
}

}  // namespace

std::vector<Asked> questions(const Item& item, Question kind, const model::Config& config,
                             const data::Tokenizer& tokenizer, int64_t max_length) {
  if (kind == Question::document) {
    const auto ids = prompt_ids(config, tokenizer, item.choices[0].continuation, item.where);
    base::require(!ids.empty(), "{}: page must have a token, got none", item.where);
    return windows(ids, first_token(config, tokenizer), max_length);
  }
  if (kind == Question::answer && item.choices.size() == 1) {
    auto ids = prompt_ids(config, tokenizer, context_of(item, item.choices[0]), item.where);
    base::require(!ids.empty(), "{}: prompt must have a token, got none", item.where);
    return {{std::move(ids), {}}};
  }
  std::vector<Asked> out;
  for (const auto& choice : item.choices)
    out.push_back(
        question(context_of(item, choice), choice.continuation, config, tokenizer, item.where));
  return out;
}

}  // namespace bmojo::eval
