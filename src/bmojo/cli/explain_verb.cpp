// `bmojo explain`: what one sequence was remembered by, as a table, as JSON and as a picture, which
// tools/explain.py draws.
#include <algorithm>
#include <memory>
#include <optional>

#include "bmojo/base/error.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/engine.h"
#include "bmojo/cli/script.h"
#include "bmojo/eval/explain.h"

namespace bmojo::cli {
namespace {

constexpr int64_t kNotGiven = -1;

struct Options {
  Common common;
  EngineChoice choice;
  std::string task, ids, out;
  int64_t number = kNotGiven, layer = kNotGiven;
  bool realization = false;
};

void check(const Options& options) {
  base::require(options.task.empty() != options.ids.empty(),
                "explain: --task or --ids is needed, got {}",
                options.task.empty() ? "neither" : "both");
  base::require(
      options.number == kNotGiven || !options.task.empty(),
      "explain: --number cannot be given with --ids; it counts the sequences of a --task");
  base::require(options.layer == kNotGiven || !options.realization,
                "explain: --layer cannot be given with --realization; it shows every layer");
}

data::Batch given_sequence(const std::vector<int64_t>& ids) {
  auto batch = data::empty_batch(1, std::ssize(ids), /*with_documents=*/false);
  batch.ids = ids;
  std::ranges::fill(batch.targets, data::kNotScored);
  return batch;
}

// {"task", "ids", "targets"} and the sequence to tell of.
std::pair<base::Json, data::Batch> sequence_given(const Options& options,
                                                  const model::Config& config) {
  base::Json told = {{"task", nullptr}, {"ids", nullptr}};
  data::Batch sequence;
  if (options.task.empty()) {
    const auto ids = parse_ids(options.ids);
    check_ids(ids, config, "--ids");
    sequence = given_sequence(ids);
  } else {
    const auto task = data::parse_task(options.task);
    require_vocabulary(task, config);
    sequence = data::draw(task, static_cast<uint64_t>(options.common.seed), data::Split::test,
                          std::max<int64_t>(options.number, 0), 1);
    told["task"] = task.text;
    told["targets"] = sequence.targets;
  }
  told["ids"] = sequence.ids;
  return {std::move(told), std::move(sequence)};
}

// The part of an answer that tells of a layer; null where the layer has no attention.
const base::Json& at_layer(const base::Json& answer, int64_t layer) {
  static const base::Json kNone;
  const auto& layers = answer["layers"];
  const auto part =
      std::ranges::find_if(layers, [&](const base::Json& each) { return each["layer"] == layer; });
  return part == layers.end() ? kNone : *part;
}

std::string largest_key(const base::Json& at) {
  if (at.is_null()) return fmt::format("{:>8} {:>9}  {:>6}", "-", "", "");
  const auto& key = at["keys"][0];
  return fmt::format("{:>8} {:>9}  {:>6.3f}", key["memory"].get<std::string>(),
                     key["position"].get<int64_t>(), key["weight"].get<double>());
}

void print_answers(const base::Json& told, int64_t layer) {
  fmt::print("{:>9} {:>7} {:>9}  {:>11}  {:>4}  {:>18}  {:>6}\n", "position", "due", "predicted",
             "probability", "held", "largest key", "weight");
  for (const auto& answer : told["answers"]) {
    const auto& at = at_layer(answer, layer);
    const bool is_known = !at.is_null() && !at["held"].is_null();
    fmt::print("{:>9} {:>7} {:>9}  {:>11.4f}  {:>4}  {}\n", answer["position"].get<int64_t>(),
               answer["due"].is_null() ? "-" : answer["due"].dump(),
               answer["predicted"].get<int64_t>(), answer["probability"].get<double>(),
               !is_known                ? "-"
               : at["held"].get<bool>() ? "yes"
                                        : "no",
               largest_key(at));
  }
}

void print_table(const base::Json& told, int64_t layer) {
  const auto& answers = told["answers"];
  const auto length = base::grouped(std::ssize(told["ids"]));
  if (told["task"].is_null()) {
    fmt::print("{} tokens; what comes next, and what layer {} attends to\n\n", length, layer);
  } else {
    const auto right = std::ranges::count_if(
        answers, [](const base::Json& answer) { return answer["due"] == answer["predicted"]; });
    fmt::print("{}\n{} of {} answers right; what layer {} attends to\n\n",
               told["task"].get<std::string>(), right, answers.size(), layer);
  }
  print_answers(told, layer);
  fmt::print("\n");
  for (const auto& each : told["layers"])
    fmt::print("layer {}, {}: {} of {} tokens kept, {} let go\n", each["layer"].get<int64_t>(),
               each["kind"].get<std::string>(), base::grouped(std::ssize(each["kept"])), length,
               base::grouped(std::ssize(each["dropped"])));
}

void print_all_layers(const base::Json& told) {
  fmt::print("{}{} tokens, layer by layer\n",
             told["task"].is_null() ? "" : told["task"].get<std::string>() + "\n",
             base::grouped(std::ssize(told["ids"])));
  print_realization(told);
}

void run_explain(const Options& options) {
  check(options);
  std::optional<Script> script;
  if (!options.out.empty()) script = find_script("explain");
  const auto model = open_model(options.choice, options.common.threads);
  const auto& config = model->config();
  base::require(options.layer < config.num_layers, "--layer: must be from 0 to {}, got {}",
                config.num_layers - 1, options.layer);
  const int64_t layer = options.layer == kNotGiven ? eval::telling_layer(config) : options.layer;
  auto [told, sequence] = sequence_given(options, config);
  told.update(options.realization ? explain_realization(options.choice, sequence)
                                  : eval::explain(*model, sequence));
  if (script) {
    const auto what =
        options.realization ? std::string("--realization") : fmt::format("--layer={}", layer);
    const auto messages = run_script(*script, {"--out=" + options.out, what}, told.dump());
    if (!options.common.quiet) base::print_stderr(messages);
  }
  if (options.common.json) return print_json(told);
  options.realization ? print_all_layers(told) : print_table(told, layer);
  if (script)
    fmt::print("\n{}: {}\n", options.out,
               options.realization ? "every layer" : fmt::format("layer {}", layer));
}

}  // namespace

void add_explain_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("explain", "What one sequence was remembered by");
  add_engine_flags(*verb, options->choice);
  verb->add_option("--task", options->task, "A sequence of a synthetic task, asked for its answers")
      ->option_text("NAME[:...]");
  add_number(*verb, {"--number", "Which sequence of the task", 0, int64_t{1} << 60, "N [0]"},
             options->number);
  verb->add_option("--ids", options->ids, "A sequence, asked for what comes next")
      ->option_text("1,2,3");
  add_number(*verb,
             {"--layer", "Layer to show (default: the last with eidetic memory)", 0,
              int64_t{1} << 40, "N"},
             options->layer);
  verb->add_flag("--realization", options->realization,
                 "The layers as linear systems: poles, memories");
  verb->add_option("--out", options->out, "Also draw it")->option_text("F.png");
  add_common(*verb, options->common);
  verb->callback([options] { run_verb([&] { run_explain(*options); }); });
}

}  // namespace bmojo::cli
