#include "bmojo/eval/prompt.h"

#include <algorithm>

#include "bmojo/base/error.h"
#include "bmojo/data/unicode.h"

namespace bmojo::eval {
namespace {

constexpr size_t kPart = 512;  // tokens that are read at once, or one of each text

// Kept from call to call: a text may go on token by token.
struct Scratch {
  std::vector<size_t> done;                 // tokens of each prompt
  std::vector<size_t> which;                // prompts that this part is of
  std::vector<Reading> readings;            // of them
  std::vector<float> hidden, last, logits;  // [tokens, D]; of the prompts that end: [n, D], [n, V]
  std::vector<Continuation*> ending;        // the n of them
};

void check(std::span<const Prompt> prompts, const model::Config& config) {
  for (size_t i = 0; i < prompts.size(); ++i) {
    for (size_t j = 0; j < i; ++j)
      base::require(prompts[i].to != prompts[j].to,
                    "read: every text must have a state of its own, got one of them twice");
    for (const auto id : prompts[i].ids)
      base::require(id >= 0 && id < config.vocab_size, "read: ids must be from 0 to {}, got {}",
                    config.vocab_size - 1, id);
  }
}

// Of every prompt its next part; false where all have been read.
bool take_parts(std::span<const Prompt> prompts, Scratch& s) {
  s.which.clear();
  s.readings.clear();
  for (size_t i = 0; i < prompts.size(); ++i)
    if (s.done[i] < prompts[i].ids.size()) s.which.push_back(i);
  const size_t most = std::max<size_t>(1, kPart / std::max<size_t>(1, s.which.size()));
  for (const auto i : s.which) {
    const auto part = prompts[i].ids.subspan(s.done[i]);
    s.readings.push_back({prompts[i].to->memory.get(), part.first(std::min(most, part.size()))});
  }
  return !s.which.empty();
}

// The logits that are wanted of a part: all of them, or the last of a prompt, which ends here where
// reading stops.
void write_logits(const LanguageModel& model, std::span<const Prompt> prompts, bool stops,
                  Scratch& s) {
  const auto D = static_cast<size_t>(model.config().hidden_size);
  const auto V = static_cast<size_t>(model.config().vocab_size);
  const float* rows = s.hidden.data();
  s.ending.clear();
  s.last.clear();
  for (size_t j = 0; j < s.which.size(); ++j) {
    const auto& prompt = prompts[s.which[j]];
    const size_t count = s.readings[j].ids.size(), end = s.done[s.which[j]] += count;
    if (prompt.every != nullptr)
      model.logits(rows, static_cast<int64_t>(count), prompt.every + (end - count) * V);
    rows += count * D;
    if (end < prompt.ids.size() && !stops) continue;
    if (prompt.every != nullptr) {
      prompt.to->logits.assign(prompt.every + (end - 1) * V, prompt.every + end * V);
      continue;
    }
    s.ending.push_back(prompt.to);
    s.last.insert(s.last.end(), rows - D, rows);
  }
  if (s.ending.empty()) return;
  // One product for all: the weights are read once.
  s.logits.resize(s.ending.size() * V);
  model.logits(s.last.data(), std::ssize(s.ending), s.logits.data());
  for (size_t n = 0; n < s.ending.size(); ++n)
    s.ending[n]->logits.assign(s.logits.data() + n * V, s.logits.data() + (n + 1) * V);
}

}  // namespace

void remember(std::vector<int64_t>& recent, std::span<const int64_t> ids) {
  ids = ids.last(std::min<size_t>(kRecentTokens, ids.size()));
  recent.insert(recent.end(), ids.begin(), ids.end());
  if (std::ssize(recent) > kRecentTokens)
    recent.erase(recent.begin(), recent.end() - kRecentTokens);
}

Continuation begin(const LanguageModel& model) {
  Continuation from;
  from.memory = model.begin();
  return from;
}

void read_together(const LanguageModel& model, std::span<const Prompt> prompts,
                   const std::function<bool()>& is_stopped) {
  check(prompts, model.config());
  thread_local Scratch s;
  s.done.assign(prompts.size(), 0);
  for (bool stops = false; !stops && take_parts(prompts, s);) {
    size_t total = 0;
    for (const auto& reading : s.readings) total += reading.ids.size();
    s.hidden.resize(total * static_cast<size_t>(model.config().hidden_size));
    model.forward(s.readings, s.hidden.data());
    stops = is_stopped && is_stopped();
    write_logits(model, prompts, stops, s);
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (s.done[i] == 0) continue;
    auto* to = prompts[i].to;
    remember(to->recent, prompts[i].ids.first(s.done[i]));
    // What was held back stands before these tokens, not behind them.
    to->pending_utf8.clear();
    to->pending_stop.clear();
  }
}

void read_prompt(const LanguageModel& model, std::span<const int64_t> ids, Continuation& from,
                 const std::function<bool()>& is_stopped) {
  const Prompt prompt{&from, ids};
  read_together(model, {&prompt, 1}, is_stopped);
}

void require_utf8(std::string_view text, const std::string& subject) {
  const auto fault = data::find_utf8_fault(text);
  base::require(fault.at == text.size(), "{}: must be UTF-8, got other bytes at {}", subject,
                fault.at);
}

std::vector<int64_t> further_ids(const data::Tokenizer& tokenizer, std::string_view text,
                                 const std::string& subject) {
  base::require(!text.empty(), "{}: must hold at least one character, got none", subject);
  if (tokenizer.name() != "bytes") require_utf8(text, subject);
  const auto ids = tokenizer.encode(text);
  return {ids.begin(), ids.end()};
}

void mark_beginning(const model::Config& config, const data::Tokenizer& tokenizer,
                    std::vector<int64_t>& ids) {
  if (config.bos_token_id >= 0 && tokenizer.name() == "sentencepiece")
    ids.insert(ids.begin(), config.bos_token_id);
}

std::vector<int64_t> prompt_ids(const model::Config& config, const data::Tokenizer& tokenizer,
                                std::string_view text, const std::string& subject) {
  auto ids = further_ids(tokenizer, text, subject);
  mark_beginning(config, tokenizer, ids);
  return ids;
}

}  // namespace bmojo::eval
