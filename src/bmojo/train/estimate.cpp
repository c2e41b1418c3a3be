#include "bmojo/train/estimate.h"

#include <algorithm>

#include "bmojo/base/memory.h"
#include "bmojo/memory/state_size.h"
#include "bmojo/model/flops.h"
#include "bmojo/nn/ops/linear_cross_entropy.h"
#include "bmojo/train/trial.h"

namespace bmojo::train {
namespace {

// Operations of a step that is tried: a second or two on one core. Of a few layers more are worth
// it, since memory is not quite in proportion to tokens.
constexpr double kMostFlops = 3e10, kMostOfLayers = 2e11;
// Fewer tokens say little about many.
constexpr int64_t kFewestTokens = 256;
// Torch's own buffers, made by the first step whatever the model is.
constexpr double kRuntimeBytes = 3e6;
// Carried memories lie scattered over the heap, and what is freed between them stays there: seen at
// windows of 64 and 512, 4 to 8 micro-batches.
constexpr double kScattered = 1.4;

double flops_of(const model::Config& config, const TrialShape& shape) {
  return model::training_flops_per_token(config, shape.length()) *
         static_cast<double>(shape.tokens());
}

double in_use() { return static_cast<double>(base::process_memory("RssAnon")); }

// What is tried: a micro-batch made smaller, and if that is not enough fewer layers.
struct TrialSize {
  TrialShape shape;
  int64_t num_layers = 0;
};

// The smallest shape that says something of the whole, or a larger one that is cheap enough.
TrialShape trial_shape(const model::Config& config, TrialShape shape, double most) {
  while (flops_of(config, shape) > most) {
    TrialShape less = shape;
    if (less.sequences > 1)
      less.sequences /= 2;
    else if (less.bptt > 1)
      less.bptt = 1;
    else
      less.segment /= 2;
    if (less.tokens() < kFewestTokens) break;
    shape = less;
  }
  return shape;
}

// The kinds of layers repeat, so two depths tell of all others.
int64_t period_of(const model::Config& config) {
  return std::min<int64_t>(std::ranges::count(config.pattern, ',') + 1, config.num_layers);
}

// With `recompute`, what one layer needs for itself is a large part and does not follow the tokens:
// few layers with all tokens say more than all layers with few. The first of them also holds what a
// deeper one finds free, so more are tried where there are more.
TrialSize trial_size(model::Config config, const TrialShape& whole, bool recompute) {
  const auto shape = trial_shape(config, whole, kMostFlops);
  const int64_t all = config.num_layers, period = period_of(config);
  const int64_t few = recompute && 4 * period < all ? 4 * period : 2 * period;
  const bool is_enough =
      recompute ? shape.tokens() == whole.tokens() : flops_of(config, shape) <= kMostFlops;
  if (is_enough || few >= all) return {shape, all};
  config.num_layers = few;
  return {trial_shape(config, whole, (recompute ? 2 : 1) * kMostOfLayers), few};
}

struct Tried {
  double bytes = 0, seconds = 0, update_seconds = 0, scoring_seconds = 0;
  int64_t num_scored = 0;
};

// Two steps of the model, or of `num_layers` of it: then of half of them first, and what the other
// half adds is added for all that are left out.
Tried try_layers(const model::Config& config, const Source& source, const TrialShape& shape,
                 const TrialStep& step, int64_t num_layers) {
  const double before = in_use();
  const auto tried = [&](int64_t layers) {
    model::Config part = config;
    part.num_layers = layers;
    const auto trial = try_steps(part, source, shape, step);
    return Tried{in_use() - before, trial.seconds, trial.update_seconds, trial.scoring_seconds,
                 trial.num_scored};
  };
  if (num_layers == config.num_layers) return tried(num_layers);
  const auto half = tried(num_layers / 2), both = tried(num_layers);
  const double times =
      2 * static_cast<double>(config.num_layers - num_layers) / static_cast<double>(num_layers);
  const auto extended = [&](double Tried::* of) {
    return both.*of + times * std::max(both.*of - half.*of, 0.0);
  };
  return {extended(&Tried::bytes), extended(&Tried::seconds), extended(&Tried::update_seconds),
          extended(&Tried::scoring_seconds), both.num_scored};
}

double loss_bytes(const model::Config& config, double num_scored) {
  return std::min(4 * num_scored * static_cast<double>(config.vocab_size),
                  static_cast<double>(nn::loss_buffer_bytes(config.vocab_size)));
}

// Memories of a sequence that has read so many tokens.
double memories_after(model::Config config, int64_t context, int64_t tokens) {
  if (config.window > 0) config.window = std::clamp<int64_t>(config.window, 1, tokens);
  config.eidetic_tokens = std::min(config.eidetic_tokens, tokens);
  return static_cast<double>(memory::memory_bytes(config, context).total());
}

// Beside weights, moments and activations of one worker: buckets that gradients are summed in, and
// carried memories, twice where a step keeps those it began with. Of `tried` micro-batches those
// after `tokens` tokens have been measured.
double shared_bytes(const Job& job, int64_t tried, int64_t tokens) {
  const auto& [recipe, given, plan, task, data] = job;
  const auto config = training_config(recipe, given);
  double carried = 0;
  if (plan.carries) {
    const auto all = static_cast<double>(memory::memory_bytes(config, recipe.context).total());
    carried = static_cast<double>(plan.num_micro) * all;
    if (tried > 0)
      carried -= static_cast<double>(tried) * memories_after(config, recipe.context, tokens);
    carried *= kScattered * static_cast<double>(recipe.micro_batch);
  }
  if (plan.num_micro > 1) carried *= 2;
  return carried + (recipe.workers > 1 ? 4 * static_cast<double>(plan.parameters) : 0);
}

// Of each step, its part; token_seconds is what a token takes to score.
double validation_seconds(const Source& source, const Job& job, double token_seconds) {
  const auto& [recipe, config, plan, task, data] = job;
  if (source.num_validation_sequences() == 0 || recipe.eval_every == 0) return 0;
  const auto tokens =
      static_cast<double>(source.num_validation_sequences() * source.validation_length());
  return tokens * token_seconds / static_cast<double>(recipe.workers * recipe.eval_every);
}

}  // namespace

Estimate estimate(const Job& job, const Source& source) {
  const auto& [recipe, config, plan, task, data] = job;
  const auto trained = training_config(recipe, config);
  Estimate result;
  result.program_bytes = in_use();
  const TrialShape whole{recipe.micro_batch, recipe.segment, recipe.bptt};
  const TrialStep step{plan.num_micro, plan.carries, recipe.recompute};
  const auto [shape, layers] = trial_size(trained, whole, recipe.recompute);
  const auto tried = try_layers(trained, source, shape, step, layers);
  const auto part = static_cast<double>(shape.tokens()) / static_cast<double>(whole.tokens());
  const auto scored = static_cast<double>(tried.num_scored);
  const double weights = 16 * static_cast<double>(plan.parameters);  // gradients, both moments
  const double taken = tried.bytes - weights - kRuntimeBytes;
  const double activations =
      std::max(taken - loss_bytes(config, scored), 0.0) / part + loss_bytes(config, scored / part);
  result.tried_tokens = shape.tokens();
  result.tried_layers = layers;
  result.memory_bytes = weights + activations + kRuntimeBytes +
                        shared_bytes(job, std::min(plan.num_micro, kMostTried), 2 * shape.length());
  const double seconds = tried.seconds * flops_of(trained, whole) / flops_of(trained, shape);
  const double token_seconds = tried.scoring_seconds / static_cast<double>(shape.tokens());
  result.step_seconds = seconds * static_cast<double>(plan.num_micro) + tried.update_seconds +
                        validation_seconds(source, job, token_seconds);
  return result;
}

}  // namespace bmojo::train
