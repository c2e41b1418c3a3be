#include "bmojo/eval/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include "bmojo/base/error.h"
#include "bmojo/data/text_stream.h"
#include "bmojo/eval/prompt.h"
#include "bmojo/kernels/log_softmax.h"

namespace bmojo::eval {
namespace {

// Text on its way out: what might be the beginning of a stop text is held back until it is certain.
class StopFilter {
 public:
  StopFilter(const std::vector<std::string>& stop, std::string held, std::string& out,
             const std::function<void(std::string_view)>& on_text)
      : stop_(stop), out_(out), on_text_(on_text), held_(std::move(held)) {}

  // True where a stop text came: what lies before it was the last.
  bool push(std::string_view text) {
    held_ += text;
    size_t first = std::string::npos;
    for (const auto& stop : stop_) first = std::min(first, held_.find(stop));
    if (first != std::string::npos) {
      release(first);
      held_.clear();
      return true;
    }
    release(held_.size() - longest_beginning());
    return false;
  }
  void finish() { release(held_.size()); }
  const std::string& held() const { return held_; }

 private:
  // The longest end of what is held that a stop text begins with.
  size_t longest_beginning() const {
    size_t longest = 0;
    for (const auto& stop : stop_)
      for (size_t n = std::min(stop.size() - 1, held_.size()); n > longest; --n)
        if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, n))) longest = n;
    return longest;
  }
  void release(size_t count) {
    const auto text = held_.substr(0, count);
    held_.erase(0, count);
    out_ += text;
    if (on_text_ && !text.empty()) on_text_(text);
  }

  const std::vector<std::string>& stop_;
  std::string& out_;
  const std::function<void(std::string_view)>& on_text_;
  std::string held_;
};

std::vector<Alternative> likeliest(const std::vector<float>& logits, int64_t count,
                                   const kernels::LogSoftmax& norm) {
  std::vector<int64_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  count = std::min(count, std::ssize(ids));
  const auto logit = [&](int64_t id) { return logits[static_cast<size_t>(id)]; };
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [&](int64_t a, int64_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  });
  std::vector<Alternative> out;
  for (int64_t i = 0; i < count; ++i) {
    const auto id = ids[static_cast<size_t>(i)];
    out.push_back({id, static_cast<double>(kernels::log_p(norm, logit(id)))});
  }
  return out;
}

// Nothing may be drawn from broken weights as if they meant something.
[[noreturn]] void refuse_logits(int64_t position) {
  throw base::RunError(fmt::format(
      "generate: logits must be finite, got NaN or infinity after {} tokens", position));
}

}  // namespace

int64_t draw(const Continuation& from, const kernels::Sampling& how,
             const data::Tokenizer* tokenizer, kernels::SamplingScratch& scratch) {
  std::span<const float> logits = from.logits;
  std::span<const int64_t> recent = from.recent;
  std::vector<int64_t> known;
  // The weights may have rows for ids that the tokenizer does not have.
  if (tokenizer != nullptr && tokenizer->vocab_size() < std::ssize(logits)) {
    logits = logits.first(static_cast<size_t>(tokenizer->vocab_size()));
    std::ranges::copy_if(recent, std::back_inserter(known),
                         [&](int64_t id) { return id < std::ssize(logits); });
    recent = known;
  }
  const int64_t position = from.memory->position();
  const int64_t id =
      kernels::sample(logits, recent, how, from.seed, static_cast<uint64_t>(position), scratch);
  if (id < 0) refuse_logits(position);
  return id;
}

Generated generate(const LanguageModel& model, Continuation& from, const GenerateOptions& options,
                   const data::Tokenizer* tokenizer,
                   const std::function<void(std::string_view)>& on_text) {
  Generated out;
  kernels::SamplingScratch scratch;
  std::optional<data::TextStream> stream;
  if (tokenizer != nullptr)
    stream.emplace(*tokenizer, std::exchange(from.pending_utf8, {}));
  else  // no text can follow what was held back
    from.pending_utf8.clear(), from.pending_stop.clear();
  StopFilter filter(options.stop, std::exchange(from.pending_stop, {}), out.text, on_text);
  std::vector<float> hidden(static_cast<size_t>(model.config().hidden_size));
  while (std::ssize(out.ids) < options.max_tokens) {
    if (options.is_stopped && options.is_stopped()) break;
    const auto norm = kernels::log_softmax(from.logits.data(), std::ssize(from.logits));
    if (std::isnan(norm.log_sum)) refuse_logits(from.memory->position());
    if (options.num_logprobs > 0)
      out.alternatives.push_back(likeliest(from.logits, options.num_logprobs, norm));
    const int64_t id = draw(from, options.sampling, tokenizer, scratch);
    out.ids.push_back(id);
    out.logprobs.push_back(kernels::log_p(norm, from.logits[static_cast<size_t>(id)]));
    const Reading reading{from.memory.get(), {&id, 1}};
    remember(from.recent, reading.ids);
    model.forward({&reading, 1}, hidden.data());
    model.logits(hidden.data(), 1, from.logits.data());
    const bool is_eos = id == model.config().eos_token_id && !options.ignore_eos;
    if (is_eos || std::ranges::find(options.ends, id) != options.ends.end()) {
      out.finish = "eos";
      break;
    }
    if (stream && filter.push(stream->push(static_cast<int32_t>(id)))) {
      out.finish = "stop";
      return out;
    }
  }
  if (options.goes_on && out.finish == "length") {
    if (stream) from.pending_utf8 = stream->held();
    from.pending_stop = filter.held();
    return out;
  }
  if (stream && filter.push(stream->finish())) {
    out.finish = "stop";
    return out;
  }
  filter.finish();
  return out;
}

}  // namespace bmojo::eval
