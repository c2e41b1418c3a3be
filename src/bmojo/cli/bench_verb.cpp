#include <torch/torch.h>

#include <chrono>
#include <memory>

#include "bmojo/base/error.h"
#include "bmojo/base/memory.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/torch_verbs.h"
#include "bmojo/model/tensors.h"
#include "bmojo/nn/adamw.h"

namespace bmojo::cli {
namespace {

struct Options {
  Common common;
  std::string model;
  model::ModelChoice choice;
  bool train = false, no_optimizer = false, recompute = false;
  int64_t length = 2048, batch = 1, repeat = 3, warm_ups = 2;
};

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Of the repeats after the warm-ups.
struct Seconds {
  double best = INFINITY, mean = 0;
};
Seconds repeated(const Options& options, const std::function<void()>& work) {
  Seconds out;
  for (int64_t i = -options.warm_ups; i < options.repeat; ++i) {
    const double seconds = seconds_of(work);
    if (i < 0) continue;
    out.best = std::min(out.best, seconds);
    out.mean += seconds / static_cast<double>(options.repeat);
  }
  return out;
}

void run_bench(const Options& options) {
  base::require(options.train, "bench: --train must be given; `bmojo` times reading and writing");
  base::require(
      options.model.empty() || (options.choice.preset.empty() && options.choice.config.empty()),
      "bench: --model cannot be given with --preset or --config");
  use_threads(options.common.threads);
  const int64_t before = base::process_memory("VmRSS");
  auto model =
      options.model.empty()
          ? nn::Model(model::resolve(options.choice),
                      nn::fresh_parameters(model::resolve(options.choice), options.common.seed))
          : load_model(options.model, options.choice.set);
  model.require_gradients();
  std::vector<at::Tensor> parameters;
  for (const auto& [name, tensor] : model.parameters()) parameters.push_back(tensor);
  torch::manual_seed(options.common.seed);
  const auto ids =
      at::randint(model.config().vocab_size, {options.batch, options.length + 1}, at::kLong);
  const auto inputs = ids.narrow(1, 0, options.length), targets = ids.narrow(1, 1, options.length);
  const auto clear = [&] {
    for (auto& tensor : parameters) tensor.mutable_grad() = at::Tensor();
  };
  nn::CallOptions call;
  call.recompute = options.recompute;
  const auto step = [&] {
    clear();
    const double mean = 1 / static_cast<double>(targets.numel());
    model.loss(model.forward(inputs, {}, call).hidden, targets, mean).backward();
  };
  const auto seconds = repeated(options, step);
  const int64_t peak = base::process_memory("VmHWM") - before;
  double with_optimizer = NAN, optimizer_alone = NAN;  // null in JSON
  if (!options.no_optimizer) {
    nn::AdamW optimizer({{parameters, 1e-4, 0.1}});
    const auto update = [&] { optimizer.step(/*max_norm=*/1); };
    const auto both = [&] {
      step();
      update();
    };
    with_optimizer = repeated(options, both).best;
    optimizer_alone = repeated(options, update).best;
  }
  const int64_t count = model::count_parameters(model.config());
  if (options.common.json)
    return print_json({{"phase", "train"},
                       {"length", options.length},
                       {"batch", options.batch},
                       {"seconds_per_step", seconds.best},
                       {"mean_seconds_per_step", seconds.mean},
                       {"seconds_per_step_with_optimizer", with_optimizer},
                       {"optimizer_seconds", optimizer_alone},
                       {"peak_rss_bytes", peak},
                       {"parameters", count},
                       {"threads", at::get_num_threads()}});
  fmt::print("train  length {}  batch {}  parameters {}\n", options.length, options.batch,
             base::grouped(count));
  const auto optimizer_part =
      options.no_optimizer ? "" : fmt::format(", {:.3f} s with the optimiser", with_optimizer);
  fmt::print("{:.3f} s a step{}, {} of memory\n", seconds.best, optimizer_part,
             base::si(static_cast<double>(peak), "B"));
}

}  // namespace

void add_bench_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("bench", "Speed of the training step");
  verb->add_option("--model", options->model, "Checkpoint folder")->option_text("DIR");
  add_model_choice(*verb, options->choice);
  verb->add_flag("--train", options->train, "Forward and backward, and with the optimiser");
  verb->add_flag("--no-optimizer", options->no_optimizer,
                 "Only forward and backward, in half the time");
  verb->add_flag("--recompute", options->recompute, "Compute layers twice, to save memory");
  add_number(*verb, {"--length", "Tokens a sequence", 1, int64_t{1} << 30, "N [2048]"},
             options->length);
  add_number(*verb, {"--batch", "Sequences", 1, int64_t{1} << 20, "N [1]"}, options->batch);
  add_number(*verb,
             {"--repeat", "Timed repeats after the warm-ups; the best counts", 1, int64_t{1} << 20,
              "N [3]"},
             options->repeat);
  add_number(*verb,
             {"--warm-ups", "Steps before the first timed one", 0, int64_t{1} << 20, "N [2]"},
             options->warm_ups);
  add_common(*verb, options->common);
  verb->callback([options] { run_verb([&] { run_bench(*options); }); });
}

}  // namespace bmojo::cli
