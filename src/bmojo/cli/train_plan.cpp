#include "bmojo/cli/train_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "bmojo/base/printable.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/model/flops.h"
#include "bmojo/model/tensors.h"

namespace bmojo::cli {
namespace {
using train::Estimate;
using train::Job;

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
std::string fitting(std::string_view text) { return base::printable(text, 62); }

std::string counted(int64_t number, std::string_view what) {
  return fmt::format("{} {}{}", base::grouped(number), what, number == 1 ? "" : "s");
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
  return base::printable(first, 62 - std::min<size_t>(read.size(), 54)) + read;
}

std::string tried_text(const Job& job, const Estimate& estimate) {
  const auto text = fmt::format("by a trial of {} tokens", base::grouped(estimate.tried_tokens));
  if (estimate.tried_layers == job.config.num_layers) return text;
  return fmt::format("{} and {}", text, counted(estimate.tried_layers, "layer"));
}

}  // namespace

std::vector<std::string> summary(const Job& job, const Estimate& estimate, int64_t step) {
  const auto& [recipe, config, plan, task, data] = job;
  const double seconds = static_cast<double>(plan.num_steps - step) * estimate.step_seconds;
  return {
      fmt::format("model         {}", model_text(job)),
      fmt::format("parameters    {}, {} without embeddings", base::grouped(plan.parameters),
                  base::grouped(model::count_parameters_without_embeddings(config))),
      fmt::format("data          {}", data_text(job)),
      fmt::format("steps         {} of {}: {} of {}", base::grouped(plan.num_steps),
                  counted(plan.tokens_per_step(), "token"), counted(plan.num_sequences, "sequence"),
                  base::grouped(plan.span)),
      fmt::format("total         {} tokens, {:.3g} a parameter", base::grouped(plan.num_tokens()),
                  static_cast<double>(plan.num_tokens()) / static_cast<double>(plan.parameters)),
      fmt::format("time          about {}, {}", duration(seconds), tried_text(job, estimate)),
      fmt::format("memory        about {}{} and {} for the program itself",
                  base::si(estimate.memory_bytes, "B"), recipe.workers > 1 ? " a worker" : "",
                  base::si(estimate.program_bytes, "B"))};
}

void print_plan(const Job& job, const Estimate& estimate, int64_t step, bool json) {
  const auto& [recipe, config, plan, task, data] = job;
  if (json)
    return print_json(
        {{"parameters", plan.parameters},
         {"steps", plan.num_steps},
         {"tokens", plan.num_tokens()},
         {"tokens_per_step", plan.tokens_per_step()},
         {"sequences_per_step", plan.num_sequences},
         {"micro_batches", plan.num_micro},
         {"segment", recipe.segment},
         {"bptt", recipe.bptt},
         {"context", recipe.context},
         {"lr", recipe.lr},
         {"ssm_lr", recipe.ssm_lr},
         {"epochs", data ? base::Json(epochs(job)) : base::Json()},
         {"seconds", static_cast<double>(plan.num_steps - step) * estimate.step_seconds},
         {"memory_bytes", estimate.memory_bytes},
         {"program_bytes", estimate.program_bytes},
         {"tried_tokens", estimate.tried_tokens},
         {"tried_layers", estimate.tried_layers},
         {"flops", model::training_flops_per_token(config, plan.span) *
                       static_cast<double>(plan.num_tokens())}});
  for (const auto& line : summary(job, estimate, step)) fmt::print("{}\n", line);
  fmt::print("at once       {} in segments of {}; gradients through {}\n",
             counted(recipe.micro_batch, "sequence"), base::grouped(recipe.segment),
             counted(recipe.bptt, "segment"));
  fmt::print("memories      {}\n", !plan.carries ? "start afresh with every sequence"
                                   : recipe.context == 0
                                       ? "carried without end"
                                       : fmt::format("carried over {} tokens", recipe.context));
  fmt::print("rates         {:g}, SSM {:g}, to {:g}; warm-up {:g}\n", recipe.lr, recipe.ssm_lr,
             recipe.min_lr, recipe.warmup);
  fmt::print("workers       {} with {}\n", base::grouped(recipe.workers),
             counted(recipe.threads, "thread"));
}

}  // namespace bmojo::cli
