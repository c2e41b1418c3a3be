#include "bmojo/eval/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "bmojo/base/error.h"
#include "bmojo/data/text_stream.h"
#include "bmojo/kernels/log_softmax.h"

namespace bmojo::eval {
namespace {

constexpr int64_t kPromptPart = 512;

void remember(std::vector<int64_t>& recent, int64_t id, int64_t span) {
  recent.push_back(id);
  if (std::ssize(recent) > span) recent.erase(recent.begin(), recent.end() - span);
}

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
    out.push_back({id, static_cast<double>(norm.log_p(logit(id)))});
  }
  return out;
}

// Ids that the tokenizer does not have are never drawn, though the weights may have rows for them.
void hide_foreign(std::vector<float>& logits, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return;
  for (auto i = static_cast<size_t>(tokenizer->vocab_size()); i < logits.size(); ++i)
    logits[i] = -std::numeric_limits<float>::infinity();
}

}  // namespace

Continuation begin(const LanguageModel& model) {
  Continuation from;
  from.memory = model.begin();
  return from;
}

void read_prompt(const LanguageModel& model, const std::vector<int64_t>& ids, Continuation& from,
                 const std::function<void()>& between_parts) {
  const auto D = static_cast<size_t>(model.config().hidden_size);
  std::vector<float> hidden;
  for (size_t done = 0; done < ids.size();) {
    const auto count = std::min<size_t>(kPromptPart, ids.size() - done);
    const Reading reading{from.memory.get(), std::span(ids).subspan(done, count)};
    hidden.resize(count * D);
    model.forward({&reading, 1}, hidden.data());
    done += count;
    if (done == ids.size()) {
      from.logits.resize(static_cast<size_t>(model.config().vocab_size));
      model.logits(hidden.data() + (count - 1) * D, 1, from.logits.data());
    }
    if (between_parts) between_parts();
  }
  from.recent.insert(from.recent.end(), ids.begin(), ids.end());
}

Generated generate(const LanguageModel& model, Continuation& from, const GenerateOptions& options,
                   const Tokenizer* tokenizer,
                   const std::function<void(std::string_view)>& on_text) {
  Generated out;
  kernels::SamplingScratch scratch;
  std::optional<TextStream> stream;
  if (tokenizer != nullptr) stream.emplace(*tokenizer, std::exchange(from.pending_utf8, {}));
  StopFilter filter(options.stop, std::exchange(from.pending_stop, {}), out.text, on_text);
  std::vector<float> hidden(static_cast<size_t>(model.config().hidden_size));
  auto& recent = from.recent;
  if (std::ssize(recent) > options.penalty_span)
    recent.erase(recent.begin(), recent.end() - options.penalty_span);
  while (std::ssize(out.ids) < options.max_tokens) {
    if (options.is_stopped && options.is_stopped()) break;
    const auto norm = kernels::log_softmax(from.logits.data(), std::ssize(from.logits));
    // Nothing may be drawn from broken weights as if they meant something.
    if (std::isnan(norm.log_sum))
      throw RunError(fmt::format(
          "generate: logits must be finite, got NaN or infinity after {} tokens", out.ids.size()));
    if (options.num_logprobs > 0)
      out.alternatives.push_back(likeliest(from.logits, options.num_logprobs, norm));
    hide_foreign(from.logits, tokenizer);
    // Draws are numbered by the position they fill, so a resumed text goes on with the same ones.
    const auto number = static_cast<uint64_t>(from.memory->position());
    const int64_t id =
        kernels::sample(from.logits, recent, options.sampling, from.seed, number, scratch);
    out.ids.push_back(id);
    out.logprobs.push_back(norm.log_p(from.logits[static_cast<size_t>(id)]));
    remember(recent, id, options.penalty_span);
    const Reading reading{from.memory.get(), {&id, 1}};
    model.forward({&reading, 1}, hidden.data());
    model.logits(hidden.data(), 1, from.logits.data());
    if (id == model.config().eos_token_id && !options.ignore_eos) {
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
