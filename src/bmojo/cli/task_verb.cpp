#include <fmt/format.h>

#include <memory>

#include "bmojo/base/error.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/cli/verbs.h"
#include "bmojo/data/task.h"

namespace bmojo::cli {
namespace {

struct Options {
  Common common;
  std::string task;
  bool show = false;
  int64_t number = 0;
};

// Tokens in columns; where an answer is due, `key→value`.
void print_sequence(const std::vector<int64_t>& ids, const std::vector<int64_t>& targets) {
  constexpr size_t kColumns = 80;
  std::vector<std::string> words;
  size_t width = 0;
  for (size_t t = 0; t < ids.size(); ++t) {
    const bool due = targets[t] != data::kNotScored;
    words.push_back(due ? fmt::format("{}->{}", ids[t], targets[t]) : fmt::format("{}", ids[t]));
    width = std::max(width, words.back().size());
  }
  const auto label = fmt::format("{}", ids.size()).size();
  const size_t per_line = std::max<size_t>((kColumns - label - 1) / (width + 1), 1);
  for (size_t t = 0; t < words.size(); ++t) {
    if (t % per_line == 0) fmt::print("{:>{}}:", t, label);
    fmt::print(" {:>{}}", words[t], width);
    if (t % per_line + 1 == per_line || t + 1 == words.size()) fmt::print("\n");
  }
}

void run_task(const Options& options) {
  const auto task = data::parse_task(data::with_example_keys(options.task));
  base::require(options.show, "task: --show must be given, got nothing to do");
  std::vector<int64_t> ids(task.length), targets(task.length), sources(task.length);
  data::draw(task, static_cast<uint64_t>(options.common.seed), data::Split::test,
             static_cast<uint64_t>(options.number), {ids, targets, sources});
  if (options.common.json)
    return print_json(
        {{"task", task.text}, {"ids", ids}, {"targets", targets}, {"sources", sources}});
  fmt::print("{}\n{}; arrows mark the answers\n", task.text, task.legend);
  print_sequence(ids, targets);
}

}  // namespace

void add_task_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("task", "Show an example of a synthetic task");
  verb->add_option("task", options->task, "NAME:key=value,..., or NAME for a small example")
      ->required();
  verb->add_flag("--show", options->show, "Print a test sequence, the answers marked");
  add_number(*verb, {"--number", "Which sequence", 0, int64_t{1} << 60, "N [0]"}, options->number);
  add_common(*verb, options->common);
  verb->callback([options] { run_task(*options); });
}

}  // namespace bmojo::cli
