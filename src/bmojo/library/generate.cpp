#include "bmojo/eval/generate.h"

#include <cmath>
#include <utility>

#include "bmojo/kernels/log_softmax.h"
#include "bmojo/kernels/sample.h"
#include "bmojo/library/access.h"

namespace bmojo::v0 {

using library::guarded;
namespace {

// Written so that NaN is refused.
template <typename Number>
void require_range(const char* name, Number value, Number least, Number most) {
  base::require(value >= least && value <= most, "{}: must be from {} to {}, got {}", name, least,
                most, value);
}

kernels::Sampling sampling_of(const SamplerOptions& options) {
  return {.temperature = options.temperature,
          .top_k = options.top_k,
          .top_p = options.top_p,
          .min_p = options.min_p,
          .repetition_penalty = options.repetition_penalty};
}

void require_logits(const char* subject, const eval::Continuation& at) {
  base::require(!at.logits.empty(), "{}: state must have read a token, got none", subject);
}

std::int64_t draw(const State& state, const SamplerOptions& options,
                  const data::Tokenizer* tokenizer) {
  return guarded([&] {
    thread_local kernels::SamplingScratch scratch;
    const auto& at = Access::of(state).at;
    require_logits("draw", at);
    return eval::draw(at, sampling_of(options), tokenizer, scratch);
  });
}

eval::GenerateOptions options_of(const Sampler& sampler, const GenerateOptions& options) {
  require_range<std::int64_t>("max_tokens", options.max_tokens, 0, eval::kMaxTokens);
  require_range<std::int64_t>("num_logprobs", options.num_logprobs, 0, eval::kMaxLogprobs);
  for (const auto& stop : options.stop) base::require(!stop.empty(), "stop: must not be empty");
  return {.max_tokens = options.max_tokens,
          .sampling = sampling_of(sampler.options()),
          .stop = options.stop,
          .ignore_eos = options.ignore_eos,
          .num_logprobs = options.num_logprobs,
          .is_stopped = options.is_stopped,
          .goes_on = options.goes_on};
}

Finish finish_of(std::string_view name) {
  if (name == "eos") return Finish::eos;
  return name == "stop" ? Finish::stop : Finish::length;
}

Generated generate(State& state, const Sampler& sampler, const data::Tokenizer* tokenizer,
                   const GenerateOptions& options) {
  return guarded([&] {
    auto& [model, at] = Access::of(state);
    require_logits("generate", at);
    base::require(tokenizer != nullptr || (options.stop.empty() && !options.on_text),
                  "generate: stop and on_text need a tokenizer, got none");
    base::require(
        tokenizer == nullptr || tokenizer->vocab_size() <= model->engine->config().vocab_size,
        "generate: the tokenizer's vocabulary must be at most the model's = {}, got {}",
        model->engine->config().vocab_size, tokenizer == nullptr ? 0 : tokenizer->vocab_size());
    auto written = eval::generate(*model->engine, at, options_of(sampler, options), tokenizer,
                                  options.on_text);
    Generated out{std::move(written.ids),
                  std::move(written.logprobs),
                  {},
                  std::move(written.text),
                  finish_of(written.finish)};
    for (const auto& row : written.alternatives) {
      auto& to = out.alternatives.emplace_back();
      for (const auto& [id, logprob] : row) to.push_back({id, logprob});
    }
    return out;
  });
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  guarded([&] {
    require_range("temperature", options.temperature, 0.0, kernels::kMaxTemperature);
    require_range<std::int64_t>("top_k", options.top_k, 0, kernels::kMaxTopK);
    require_range("top_p", options.top_p, 0.0, 1.0);
    require_range("min_p", options.min_p, 0.0, 1.0);
    require_range("repetition_penalty", options.repetition_penalty, kernels::kLeastPenalty,
                  kernels::kMaxPenalty);
  });
}

std::int64_t Sampler::draw(const State& state) const { return v0::draw(state, options_, nullptr); }
std::int64_t Sampler::draw(const State& state, const Tokenizer& tokenizer) const {
  return v0::draw(state, options_, &Access::of(tokenizer));
}

double log_probability(std::span<const float> logits, std::int64_t id) {
  return guarded([&] {
    base::require(id >= 0 && id < std::ssize(logits),
                  "log_probability: id must be below the number of logits = {}, got {}",
                  logits.size(), id);
    const auto norm = kernels::log_softmax(logits.data(), std::ssize(logits));
    return static_cast<double>(kernels::log_p(norm, logits[static_cast<size_t>(id)]));
  });
}

Generated generate(State& state, const Sampler& sampler, const GenerateOptions& options) {
  return generate(state, sampler, nullptr, options);
}

Generated generate(State& state, const Sampler& sampler, const Tokenizer& tokenizer,
                   const GenerateOptions& options) {
  return generate(state, sampler, &Access::of(tokenizer), options);
}

}  // namespace bmojo::v0
