// `bmojo plot`: tools/plot.py draws; here its arguments are checked.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "bmojo/base/error.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/cli/script.h"
#include "bmojo/cli/verbs.h"

namespace bmojo::cli {
namespace {
namespace fs = std::filesystem;

struct Options {
  Common common;
  std::vector<std::string> runs;
  std::string out, tensorboard, against;
};

void check_run(const std::string& run) {
  std::error_code unreadable;
  base::require(fs::is_directory(run, unreadable),
                "plot: {} must be a folder with metrics.jsonl, got {}; bmojo train --out makes one",
                run, fs::exists(run, unreadable) ? "a file" : "none");
  base::require(
      fs::is_regular_file(fs::path(run) / "metrics.jsonl", unreadable),
      "plot: {} must be a folder with metrics.jsonl, got one without; bmojo train --out makes "
      "one",
      run);
}

void check_results(const Options& options) {
  std::error_code unreadable;
  base::require(options.runs.size() == 1 && fs::is_regular_file(options.runs.front(), unreadable),
                "plot: --against needs one results.jsonl of bmojo sweep, got {}",
                options.runs.size() == 1 ? options.runs.front() : "several");
  base::require(options.tensorboard.empty(), "plot: --against cannot be given with --tensorboard");
}

std::string default_out(const Options& options) {
  const fs::path first = options.runs.front();
  return options.against.empty() ? (first / "metrics.png").string()
                                 : fs::path(first).replace_extension(".png").string();
}

std::vector<std::string> arguments(const Options& options) {
  const auto out = options.out.empty() ? default_out(options) : options.out;
  std::vector<std::string> words = {"--out=" + out};
  if (!options.tensorboard.empty()) words.push_back("--tensorboard=" + options.tensorboard);
  if (!options.against.empty()) words.push_back("--against=" + options.against);
  if (options.common.json) words.emplace_back("--json");
  words.emplace_back("--");
  words.insert(words.end(), options.runs.begin(), options.runs.end());
  return words;
}

void run_plot(const Options& options) {
  if (options.against.empty())
    for (const auto& run : options.runs) check_run(run);
  else
    check_results(options);
  const auto messages = run_script(find_script("plot"), arguments(options));
  if (!options.common.quiet) std::fputs(messages.c_str(), stderr);
}

}  // namespace

void add_plot_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("plot", "Draw the curves of training runs");
  verb->add_option("RUN", options->runs, "Folders that bmojo train wrote, or a sweep's results")
      ->type_name("")
      ->required();
  verb->add_option("--out", options->out, "Picture to write (default: metrics.png in RUN)")
      ->option_text("F.png");
  verb->add_option("--tensorboard", options->tensorboard, "Also write event files there")
      ->option_text("DIR");
  verb->add_option("--against", options->against, "Draw a sweep's results over an axis")
      ->option_text("AXIS");
  add_common(*verb, options->common);
  verb->callback([options] { run_plot(*options); });
}

}  // namespace bmojo::cli
