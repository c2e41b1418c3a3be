#include "bmojo/cli/train_plan.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "bmojo/base/memory.h"
#include "bmojo/base/printable.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/model/flops.h"
#include "bmojo/model/tensors.h"
#include "bmojo/nn/linear_cross_entropy.h"
#include "bmojo/train/trial.h"

namespace bmojo {
namespace {
using train::TrialShape;

// Operations of a step that is tried: a second or two on one core.
constexpr double kMostFlops = 3e10;
// Fewer tokens say little about many.
constexpr int64_t kFewestTokens = 256;
// Of the speed of large products, what a model reaches.
constexpr double kShareOfProducts = 0.7;
// Torch's own buffers, made by the first step whatever the model is.
constexpr double kRuntimeBytes = 3e6;
// Carried memories lie scattered over the heap, and what is freed between them stays there: seen at
// windows of 64 and 512, 4 to 8 micro-batches.
constexpr double kScattered = 1.4;

// Floating-point operations a second in a product of matrices, best of five.
double product_speed() {
  const auto a = at::rand({1024, 1024}), b = at::rand({1024, 1024});
  double best = INFINITY;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    at::mm(a, b);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count());
  }
  return 2 * 1024.0 * 1024 * 1024 / best;
}

double flops_of(const Config& config, const TrialShape& shape) {
  return training_flops_per_token(config, shape.length()) * static_cast<double>(shape.tokens());
}

// A micro-batch, made smaller until it can be tried.
std::optional<TrialShape> trial_shape(const Config& config, TrialShape shape) {
  while (flops_of(config, shape) > kMostFlops) {
    if (shape.rows > 1)
      shape.rows /= 2;
    else if (shape.bptt > 1)
      shape.bptt = 1;
    else
      shape.segment /= 2;
    if (shape.tokens() < kFewestTokens) return {};
  }
  return shape;
}

double loss_bytes(const Config& config, double num_scored) {
  return std::min(4 * num_scored * static_cast<double>(config.vocab_size),
                  static_cast<double>(nn::loss_buffer_bytes(config.vocab_size)));
}

// Memories of a sequence that has read so many tokens.
double memories_after(Config config, int64_t context, int64_t tokens) {
  if (config.window > 0) config.window = std::clamp<int64_t>(config.window, 1, tokens);
  config.eidetic_tokens = std::min(config.eidetic_tokens, tokens);
  return static_cast<double>(memory_bytes(config, context).total());
}

// Beside weights, moments and activations of one worker: buckets that gradients are summed in, and
// carried memories, twice where a step keeps those it began with. Of `tried` micro-batches those
// after `tokens` tokens have been measured.
double shared_bytes(const Job& job, int64_t tried, int64_t tokens) {
  const auto& [recipe, given, plan, task, data] = job;
  const auto config = train::training_config(recipe, given);
  double carried = 0;
  if (plan.carries) {
    const auto all = static_cast<double>(memory_bytes(config, recipe.context).total());
    carried = static_cast<double>(plan.num_micro) * all;
    if (tried > 0)
      carried -= static_cast<double>(tried) * memories_after(config, recipe.context, tokens);
    carried *= kScattered * static_cast<double>(recipe.micro_batch);
  }
  if (plan.num_micro > 1) carried *= 2;
  return carried + (recipe.workers > 1 ? 4 * static_cast<double>(plan.parameters) : 0);
}

// Weights, moments, gradients and activations of a model that is not tried. While the backward pass
// of a step's only micro-batch goes through the layers, gradients take the place of activations;
// with several, those of the micro-batch before are there all the time.
double counted_bytes(const Job& job, const Config& config) {
  const auto& [recipe, given, plan, task, data] = job;
  const auto kept = train::kept_bytes_per_token(config, recipe.recompute);
  const auto tokens = static_cast<double>(recipe.micro_batch * plan.span);
  const double weights = 4 * static_cast<double>(plan.parameters);
  const double head = 4 * static_cast<double>(config.vocab_size * config.hidden_size);
  const double activations = tokens * kept.model, of_a_layer = tokens * kept.layer;
  const double scores = loss_bytes(config, tokens);
  const double most = plan.num_micro > 1 ? weights + activations
                                         : std::max(activations + head, weights);
  return 3 * weights + most + std::max(of_a_layer, scores);
}

// Of each step, its part; token_seconds is what a token takes to score.
double validation_seconds(const train::Source& source, const Job& job, double token_seconds) {
  const auto& [recipe, config, plan, task, data] = job;
  if (source.num_validation_rows() == 0 || recipe.eval_every == 0) return 0;
  const auto tokens =
      static_cast<double>(source.num_validation_rows() * source.validation_length());
  return tokens * token_seconds / static_cast<double>(recipe.workers * recipe.eval_every);
}

std::string duration(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", std::max(seconds, 1.0));
  if (seconds < 90 * 60) return fmt::format("{:.0f} minutes", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{:.1f} hours", seconds / 3600);
  return fmt::format("{:.0f} days", seconds / 86400);
}

double epochs(const Job& job) {
  const auto held_out =
      static_cast<int64_t>(job.recipe.val_fraction * static_cast<double>(job.data->num_tokens()));
  return static_cast<double>(job.plan.num_tokens()) /
         static_cast<double>(job.data->num_tokens() - held_out);
}

// Behind the name of a line: what is longer than a terminal is cut.
std::string fitting(std::string_view text) { return printable(text, 62); }

std::string counted(int64_t number, std::string_view what) {
  return fmt::format("{} {}{}", grouped(number), what, number == 1 ? "" : "s");
}

std::string model_text(const Job& job) {
  const auto& recipe = job.recipe;
  const std::filesystem::path from = recipe.init_from.empty() ? recipe.config : recipe.init_from;
  return fitting(fmt::format(
      "{}: {} ({}), width {}", recipe.preset.empty() ? from.filename().string() : recipe.preset,
      counted(job.config.num_layers, "layer"), job.config.pattern, job.config.hidden_size));
}

std::string data_text(const Job& job) {
  if (job.task) return fitting(job.task->text);
  const auto& names = job.recipe.data;
  const auto more = names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : "";
  const auto read =
      fmt::format("{}: {} in {}, read {:.3g} times", more, counted(job.data->num_tokens(), "token"),
                  counted(job.data->num_documents(), "document"), epochs(job));
  const auto first = std::filesystem::path(names[0]).filename().string();
  return printable(first, 62 - std::min<size_t>(read.size(), 54)) + read;
}

}  // namespace

Estimate estimate(const Job& job, const train::Source& source) {
  const auto& [recipe, config, plan, task, data] = job;
  const auto trained = train::training_config(recipe, config);
  Estimate result;
  const auto in_use = [] { return static_cast<double>(process_memory("RssAnon")); };
  result.program_bytes = in_use();
  const TrialShape whole{recipe.micro_batch, recipe.segment, recipe.bptt};
  const auto tokens = static_cast<double>(whole.tokens());
  const double weights = 16 * static_cast<double>(plan.parameters);  // gradients, both moments
  double seconds = 0, update_seconds = 0, token_seconds = 0, activations = 0;
  int64_t tried = 0,
          tried_length = 0;  // micro-batches and their tokens whose memories were carried
  if (const auto shape = trial_shape(trained, whole)) {
    const train::TrialStep step{plan.num_micro, plan.carries, recipe.recompute};
    const auto trial = train::try_steps(trained, source, *shape, step);
    seconds = trial.seconds * flops_of(trained, whole) / flops_of(trained, *shape);
    update_seconds = trial.update_seconds;
    token_seconds = trial.scoring_seconds / static_cast<double>(shape->tokens());
    const auto part = static_cast<double>(shape->tokens()) / tokens;
    const auto scored = static_cast<double>(trial.num_scored);
    const double taken = in_use() - result.program_bytes - weights - kRuntimeBytes;
    activations = std::max(taken - loss_bytes(config, scored), 0.0) / part +
                  loss_bytes(config, scored / part);
    result.tried_tokens = shape->tokens();
    tried = std::min(plan.num_micro, train::kMostTried);
    tried_length = 2 * shape->length();
  } else {
    seconds = flops_of(trained, whole) / (kShareOfProducts * product_speed());
    token_seconds = seconds / tokens / 3;  // forward only
    activations = counted_bytes(job, trained) - weights;
  }
  result.memory_bytes =
      weights + activations + kRuntimeBytes + shared_bytes(job, tried, tried_length);
  result.step_seconds = seconds * static_cast<double>(plan.num_micro) + update_seconds +
                        validation_seconds(source, job, token_seconds);
  return result;
}

std::vector<std::string> summary(const Job& job, const Estimate& estimate, int64_t step) {
  const auto& [recipe, config, plan, task, data] = job;
  const double seconds = static_cast<double>(plan.num_steps - step) * estimate.step_seconds;
  return {
      fmt::format("model         {}", model_text(job)),
      fmt::format("parameters    {}, {} without embeddings", grouped(plan.parameters),
                  grouped(count_parameters_without_embeddings(config))),
      fmt::format("data          {}", data_text(job)),
      fmt::format("steps         {} of {}: {} of {}", grouped(plan.num_steps),
                  counted(plan.tokens_per_step(), "token"), counted(plan.num_rows, "sequence"),
                  grouped(plan.span)),
      fmt::format("total         {} tokens, {:.3g} a parameter", grouped(plan.num_tokens()),
                  static_cast<double>(plan.num_tokens()) / static_cast<double>(plan.parameters)),
      fmt::format("time          about {}, {}", duration(seconds),
                  estimate.tried_tokens > 0
                      ? fmt::format("by a trial of {} tokens", grouped(estimate.tried_tokens))
                      : "roughly, by counting operations"),
      fmt::format("memory        {} {}{} and {} for the program itself",
                  estimate.tried_tokens > 0 ? "about" : "roughly", si(estimate.memory_bytes, "B"),
                  recipe.workers > 1 ? " a worker" : "", si(estimate.program_bytes, "B"))};
}

void print_plan(const Job& job, const Estimate& estimate, int64_t step, bool json) {
  const auto& [recipe, config, plan, task, data] = job;
  if (json)
    return print_json(
        {{"parameters", plan.parameters},
         {"steps", plan.num_steps},
         {"tokens", plan.num_tokens()},
         {"tokens_per_step", plan.tokens_per_step()},
         {"sequences_per_step", plan.num_rows},
         {"micro_batches", plan.num_micro},
         {"segment", recipe.segment},
         {"bptt", recipe.bptt},
         {"context", recipe.context},
         {"lr", recipe.lr},
         {"ssm_lr", recipe.ssm_lr},
         {"epochs", data ? Json(epochs(job)) : Json()},
         {"seconds", static_cast<double>(plan.num_steps - step) * estimate.step_seconds},
         {"memory_bytes", estimate.memory_bytes},
         {"program_bytes", estimate.program_bytes},
         {"tried_tokens", estimate.tried_tokens},
         {"flops",
          training_flops_per_token(config, plan.span) * static_cast<double>(plan.num_tokens())}});
  for (const auto& line : summary(job, estimate, step)) fmt::print("{}\n", line);
  fmt::print("at once       {} in segments of {}; gradients through {}\n",
             counted(recipe.micro_batch, "sequence"), grouped(recipe.segment),
             counted(recipe.bptt, "segment"));
  fmt::print("memories      {}\n", !plan.carries ? "start afresh with every sequence"
                                   : recipe.context == 0
                                       ? "carried without end"
                                       : fmt::format("carried over {} tokens", recipe.context));
  fmt::print("rates         {:g}, SSM {:g}, to {:g}; warm-up {:g}\n", recipe.lr, recipe.ssm_lr,
             recipe.min_lr, recipe.warmup);
  fmt::print("workers       {} with {}\n", grouped(recipe.workers),
             counted(recipe.threads, "thread"));
}

}  // namespace bmojo
