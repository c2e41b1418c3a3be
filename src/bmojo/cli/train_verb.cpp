#include <stdlib.h>
#include <torch/torch.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "bmojo/base/error.h"
#include "bmojo/base/memory.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/torch_verbs.h"
#include "bmojo/cli/train_flags.h"
#include "bmojo/cli/train_plan.h"
#include "bmojo/train/launch.h"
#include "bmojo/train/trainer.h"

namespace bmojo::cli {
namespace {
namespace fs = std::filesystem;
using train::Job;
using train::Started;

struct Options {
  std::string run, out;
  bool resume = false, dry_run = false, quiet = false, json = false;
};

void say(const std::string& text) { base::print_stderr(text + '\n'); }

// Refuses what would end the run before its first step, and prints the plan. Writes nothing.
void dry_run(const Job& job, const Options& options, const std::optional<Started>& started) {
  const train::Source source(job.recipe, job.plan, job.task, job.data);
  const int64_t step = train::check_start(job, source, started, options.out, say);
  use_threads(job.recipe.threads);
  print_plan(job, train::estimate(job, source), step, options.json);
}

// The heap is never given back (see main), so it is as large as it has been. Files that were mapped
// are not counted: their pages are the system's to drop.
int64_t peak_memory() { return base::process_memory("RssAnon"); }

void print_result(const train::Trainer& trainer, const Options& options) {
  const auto best = trainer.best_loss();
  const auto& overhead = trainer.overhead();
  if (options.json)
    return print_json({{"step", trainer.num_steps_done()},
                       {"loss", trainer.last_loss()},
                       {"best_val_loss", best ? base::Json(*best) : base::Json()},
                       {"seconds", trainer.seconds_running()},
                       {"read_seconds", overhead.reading},
                       {"log_seconds", overhead.logging},
                       {"save_seconds", overhead.saving},
                       {"peak_memory_bytes", peak_memory()},
                       {"out", options.out}});
  fmt::print("{}: step {}, loss {}{}\n", options.out, trainer.num_steps_done(),
             eval::loss_text(trainer.last_loss()),
             best ? fmt::format(", best validation {:.4f}", *best) : "");
  if (!options.quiet)
    say(fmt::format("{} in this call, {:.1f} % of it reading, logging and saving; memory {}",
                    base::clock_text(trainer.seconds_running()),
                    100 * overhead.total() / trainer.seconds_running(),
                    base::si(static_cast<double>(peak_memory()), "B")));
}

void run_worker(const Job& job, const Options& options, const std::optional<Started>& started,
                const train::Workers& workers) {
  use_threads(job.recipe.threads);
  const bool shows = workers.first() && !options.quiet;
  train::Estimate expected;
  const train::WorkerCalls calls{
      .before =
          [&](const train::Source& source) {
            if (shows) expected = train::estimate(job, source);
          },
      .starts =
          [&](const train::Trainer& trainer, std::optional<int64_t> resumed) {
            if (!shows) return;
            const int64_t step = trainer.num_steps_done();
            for (const auto& line : summary(job, expected, step)) say(line);
            if (started)
              say(fmt::format("{}: {} {}", options.out,
                              resumed ? "goes on from step" : "no checkpoint yet, starts at step",
                              step));
          },
      .stop_asked = [] { return interrupted_by() != 0; },
      .say = say,
      .quiet = options.quiet};
  train::with_trainer(job, options.out, started, workers, calls, [&](train::Trainer& trainer) {
    defer_interrupts();
    const auto ending = trainer.run();
    if (ending == train::Ending::interrupted)
      throw Interrupted{SIGINT, fmt::format("interrupted at step {}, saved; go on with --resume",
                                            trainer.num_steps_done())};
    if (workers.first()) print_result(trainer, options);
  });
}

// The words this program was started with.
std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

void run_train(const Options& options, const CLI::App& given) {
  end_with_130();
  // MKL repeats its sums to the bit only in this mode; it is read at the first product.
  setenv("MKL_CBWR", "AUTO", /*overwrite=*/0);
  base::require(options.dry_run || !options.out.empty(),
                "--out: must name the run's folder, got none");
  std::optional<Started> started;
  if (options.resume) started = train::load_started(options.out);
  auto recipe =
      train::merged_recipe(recipe_flags(given), options.run,
                           started ? fs::path(options.out) / model::kRunFile : fs::path());
  const auto place = train::place_from_environment();
  if (place) {
    base::require(given.get_option("--workers")->count() == 0 || recipe.workers == place->count,
                  "--workers: must be as many as were started = {}, got {}; leave it out",
                  place->count, recipe.workers);
    recipe.workers = place->count;
  }
  // What was said first: with another task or number of workers the rest might not fit together.
  if (started) train::require_same(said_fields(started->recipe), said_fields(recipe), options.out);
  // A worker that was started as one already has its share of the threads.
  const int64_t share = place ? 1 : std::max<int64_t>(recipe.workers, 1);
  const auto job =
      train::prepare(std::move(recipe), started, options.out, at::get_num_threads() / share);
  if (options.dry_run) return dry_run(job, options, started);
  if (job.recipe.workers > 1 && !place) {
    auto words = command_line();
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    const auto count = static_cast<int>(job.recipe.workers);
    throw Exit{train::run_workers(count, static_cast<int>(job.recipe.threads),
                                  static_cast<int>(argv.size()), argv.data())};
  }
  train::as_worker([&] {
    run_worker(job, options, started, place ? train::Workers::join(*place) : train::Workers());
  });
}

}  // namespace

void add_train_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("train", "Train a model on text or on a task, and resume");
  verb->add_option("--run", options->run, "Take flags from a file: lr = 0.001, one a line")
      ->option_text("FILE.toml");
  add_recipe_flags(*verb);
  verb->add_option("--out", options->out, "The run's folder")->option_text("DIR");
  verb->add_flag("--resume", options->resume, "Go on with the run in --out");
  verb->add_flag("--dry-run", options->dry_run, "Print the plan and exit");
  verb->add_flag("--json", options->json, "Print JSON and nothing else on stdout");
  verb->add_flag("--quiet", options->quiet, "No progress on stderr");
  verb->callback([options, verb] { run_verb([&] { run_train(*options, *verb); }); });
}

}  // namespace bmojo::cli
