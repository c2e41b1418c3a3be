// `bmojo sweep`: a grid of trainings and what each trained model answers, a line of results a run.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/cli/sweep_result.h"
#include "bmojo/cli/sweep_runner.h"
#include "bmojo/cli/verbs.h"

namespace bmojo::cli {
namespace {
namespace fs = std::filesystem;

struct Options {
  std::string file, out, results;
  int64_t jobs = 0;
  bool keep = false, dry_run = false, quiet = false, json = false;
};

int64_t default_jobs(const Sweep& sweep) {
  int64_t most = 1;
  for (const auto& run : sweep.runs) {
    const auto number = [&](const char* key) {
      return std::max<int64_t>(std::atoll(run.value_of(key).c_str()), 1);
    };
    most = std::max(most, number("threads") * number("workers"));
  }
  return std::max<int64_t>(std::thread::hardware_concurrency() / most, 1);
}

// Those that no line of the results is of: the same fields, asked the same.
std::vector<const SweepRun*> runs_left(const Sweep& sweep, const std::vector<base::Json>& results) {
  std::vector<const SweepRun*> left;
  for (const auto& run : sweep.runs) {
    const auto recipe = to_json(run), asked = to_json(sweep, evals_of(sweep, run));
    const bool is_done = std::ranges::any_of(results, [&](const base::Json& line) {
      return line.at("recipe") == recipe && line.value("asked", base::Json()) == asked;
    });
    if (!is_done) left.push_back(&run);
  }
  return left;
}

std::string expected(const RunSeconds& seconds, int64_t jobs) {
  double total = 0, longest = 0;
  for (const auto& [run, each] : seconds) {
    if (each <= 0) return "a time that is not known";
    total += each;
    longest = std::max(longest, each);
  }
  return "about " + base::clock_text(std::max(total / static_cast<double>(jobs), longest));
}

void run_sweep(Options options) {
  const auto sweep = load_sweep(options.file);
  if (options.jobs == 0) options.jobs = default_jobs(sweep);
  if (options.out.empty()) options.out = fs::path(options.file).stem().string();
  end_with_130();
  defer_interrupts();
  const SweepFolder folder(options.out);
  const auto results = options.results.empty() ? folder.path() / "results.jsonl"
                                               : base::absolute_path(options.results);
  const auto runs = runs_left(sweep, load_results(results));
  const auto num_before = sweep.runs.size() - runs.size();
  const auto seconds = check_runs(folder, runs, options.jobs);
  const bool quiet = options.quiet || options.json;
  if (!quiet)
    fmt::print(stderr, "{} runs, {} done before, {} at a time for {}\n", sweep.runs.size(),
               num_before, options.jobs, expected(seconds, options.jobs));
  if (options.dry_run) {
    for (const auto* run : runs) fmt::print("{}\n", run->name);
    return;
  }
  const auto failures =
      run_all(sweep, runs, folder, seconds, {results, options.jobs, options.keep, quiet});
  if (!failures.empty())
    throw base::RunError(fmt::format("sweep: {} of {} runs failed, the first: {}", failures.size(),
                                     sweep.runs.size(), failures.front()));
  if (options.json)
    return print_json({{"runs", sweep.runs.size()},
                       {"done", runs.size()},
                       {"done_before", num_before},
                       {"results", results.string()}});
  fmt::print("{}: {} runs, {} of them done now\n", results.string(), sweep.runs.size(),
             runs.size());
}

}  // namespace

void add_sweep_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("sweep", "Train and evaluate a grid of models");
  verb->add_option("FILE", options->file, "What to run: docs/sweeps.md")->type_name("")->required();
  verb->add_option("--out", options->out, "Folder of the runs (default: FILE without its ending)")
      ->option_text("DIR");
  verb->add_option("--results", options->results, "A line a run (default: results.jsonl in --out)")
      ->option_text("FILE");
  verb->add_option("--jobs", options->jobs, "Runs at a time (default: as many as cores allow)")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->option_text("N");
  verb->add_flag("--keep", options->keep, "Keep the checkpoints of finished runs");
  verb->add_flag("--dry-run", options->dry_run, "Check every run, print their names and exit");
  verb->add_flag("--json", options->json, "Print JSON and nothing else on stdout");
  verb->add_flag("--quiet", options->quiet, "No progress on stderr");
  verb->callback([options] { run_sweep(*options); });
}

}  // namespace bmojo::cli
