#include "bmojo/eval/greedy.h"

#include <algorithm>
#include <cmath>

#include "bmojo/base/error.h"
#include "bmojo/data/text_stream.h"
#include "bmojo/kernels/log_softmax.h"

namespace bmojo::eval {
namespace {

struct Text {
  Continuation& from;
  Generated& out;
  data::TextStream stream;

  // True where a text to stop at has come: it is cut off.
  bool add(const std::string& more, const std::vector<std::string>& stop) {
    out.text += more;
    size_t first = std::string::npos;
    for (const auto& each : stop) first = std::min(first, out.text.find(each));
    if (first == std::string::npos) return false;
    out.text.resize(first);
    out.finish = "stop";
    return true;
  }
};

bool is_end(const LanguageModel& model, const Until& until, int64_t id) {
  return id == model.config().eos_token_id || std::ranges::find(until.ends, id) != until.ends.end();
}

// The likeliest token. True where the text goes on behind it.
bool write_token(const LanguageModel& model, Text& text, const Until& until,
                 const data::Tokenizer& tokenizer, kernels::SamplingScratch& scratch) {
  const auto& logits = text.from.logits;
  const int64_t id = draw(text.from, {.temperature = 0}, &tokenizer, scratch);
  const auto norm = kernels::log_softmax(logits.data(), std::ssize(logits));
  const auto log_p = static_cast<double>(kernels::log_p(norm, logits[static_cast<size_t>(id)]));
  if (!std::isfinite(log_p))
    throw base::RunError("eval: log-probabilities must be finite, got NaN or infinity");
  text.out.ids.push_back(id);
  text.out.logprobs.push_back(log_p);
  const bool ends = is_end(model, until, id);
  if (ends) text.out.finish = "eos";
  if (!ends && text.add(text.stream.push(static_cast<int32_t>(id)), until.stop)) return false;
  if (!ends && std::ssize(text.out.ids) < until.max_tokens) return true;
  text.add(text.stream.finish(), until.stop);
  return false;
}

// The last token of each.
void read_tokens(const LanguageModel& model, std::span<Text* const> texts,
                 std::vector<float>& hidden, std::vector<float>& logits) {
  const auto n = texts.size(), V = static_cast<size_t>(model.config().vocab_size);
  std::vector<Reading> readings;
  for (const auto* text : texts)
    readings.push_back({text->from.memory.get(), std::span(text->out.ids).last(1)});
  hidden.resize(n * static_cast<size_t>(model.config().hidden_size));
  logits.resize(n * V);
  model.forward(readings, hidden.data());
  model.logits(hidden.data(), static_cast<int64_t>(n), logits.data());
  for (size_t i = 0; i < n; ++i)
    std::copy_n(logits.data() + i * V, V, texts[i]->from.logits.data());
}

}  // namespace

std::vector<Generated> write_greedily(const LanguageModel& model, std::span<Continuation> from,
                                      const Until& until, const data::Tokenizer& tokenizer,
                                      const std::function<void()>& between_steps) {
  std::vector<Generated> out(from.size());
  std::vector<Text> texts;
  for (size_t i = 0; i < from.size(); ++i)
    texts.push_back({from[i], out[i], data::TextStream(tokenizer, "")});
  std::vector<Text*> open;
  for (auto& text : texts) open.push_back(&text);
  kernels::SamplingScratch scratch;
  std::vector<float> hidden, logits;
  while (true) {
    std::erase_if(
        open, [&](Text* text) { return !write_token(model, *text, until, tokenizer, scratch); });
    if (open.empty()) return out;
    read_tokens(model, open, hidden, logits);
    if (between_steps) between_steps();
  }
}

}  // namespace bmojo::eval
