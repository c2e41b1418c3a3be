#include <cmath>
#include <memory>
#include <numbers>

#include "bmojo/base/error.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/engine.h"
#include "bmojo/cli/eval_suite.h"
#include "bmojo/data/own_tokenizer.h"
#include "bmojo/eval/evaluate.h"
#include "bmojo/model/checkpoint.h"

namespace bmojo::cli {
namespace {

struct Options {
  Common common;
  EngineChoice choice;
  std::string task;
  std::vector<std::string> data;
  SuiteOptions suite;
  int64_t sequences = 1000, batch = 16;
};

void eval_task(const eval::LanguageModel& model, const Options& options) {
  const auto task = data::parse_task(options.task);
  require_vocabulary(task, model.config());
  eval::Score total;
  base::Progress progress("eval", "sequences", options.common.quiet);
  for (int64_t done = 0; done < options.sequences;) {
    const int64_t count = std::min(options.batch, options.sequences - done);
    const auto seed = static_cast<uint64_t>(options.common.seed);
    total += eval::evaluate(model, data::draw(task, seed, data::Split::test, done, count));
    done += count;
    progress.update(done, options.sequences);
  }
  if (options.common.json)
    return print_json({{"task", task.text},
                       {"accuracy", total.accuracy()},
                       {"answers", total.num_scored},
                       {"length", task.length},
                       {"loss", total.loss()},
                       {"held", total.held()}});
  fmt::print("{}\naccuracy {:.2f} % of {} answers, loss {:.4f}\n", task.text,
             100 * total.accuracy(), base::grouped(total.num_scored), total.loss());
  std::vector<std::string> shares;
  for (const auto share : total.held()) shares.push_back(fmt::format("{:.1f} %", 100 * share));
  if (!shares.empty())
    fmt::print("answers in the eidetic memory when asked, by layer: {}\n", fmt::join(shares, ", "));
}

void eval_text(const eval::LanguageModel& model, const Options& options) {
  const data::TokenData data({options.data.begin(), options.data.end()});
  // A model of the data's own tokenizer may have room for more ids.
  const bool is_known =
      data::require_tokenizer_of(model::checkpoint_folder(options.choice.model), data);
  const int64_t own = model.config().vocab_size;
  base::require(data.vocab_size() == own || (is_known && data.vocab_size() < own),
                "--data: vocabulary must be the model's = {}, got {}", own, data.vocab_size());
  base::Progress progress("eval", "tok", options.common.quiet);
  const auto [total, by_position] = eval::evaluate_text(
      model, data, [&](int64_t done) { progress.update(done, data.num_tokens()); });
  base::require(total.num_scored > 0, "--data: must hold a token to predict, got none");
  const double bits = total.nats / std::numbers::ln2 / static_cast<double>(data.num_bytes());
  const auto low = [](size_t i) { return i == 0 ? 0 : int64_t{1} << (i - 1); };
  base::Json rows = base::Json::array();
  for (size_t i = 0; i < by_position.size(); ++i)
    if (by_position[i].num_scored > 0)
      rows.push_back({{"from", low(i)},
                      {"to", int64_t{1} << i},
                      {"loss", by_position[i].loss()},
                      {"tokens", by_position[i].num_scored}});
  if (options.common.json)
    return print_json({{"loss", total.loss()},
                       {"perplexity", std::exp(total.loss())},
                       {"bits_per_byte", bits},
                       {"tokens", total.num_scored},
                       {"by_position", rows}});
  fmt::print("loss {:.4f} nats a token, perplexity {:.3f}, {:.4f} bits a byte, {} tokens\n",
             total.loss(), std::exp(total.loss()), bits, base::grouped(total.num_scored));
  fmt::print("\nposition in the document      loss      tokens\n");
  for (const auto& row : rows)
    fmt::print("{:>11} … {:<11}  {:>8.4f}  {:>10}\n", base::grouped(row["from"]),
               base::grouped(row["to"].get<int64_t>() - 1), row["loss"].get<double>(),
               base::grouped(row["tokens"]));
}

void run_eval(const Options& options) {
  const int given = static_cast<int>(!options.task.empty()) +
                    static_cast<int>(!options.data.empty()) +
                    static_cast<int>(!options.suite.name.empty());
  base::require(given == 1, "eval: --task, --data or --suite is needed, got {}",
                given == 0 ? "none" : "more than one");
  check_suite_flags(options.suite);
  if (!options.suite.name.empty())
    return eval_suite(options.choice, options.common, options.suite, options.batch);
  auto choice = options.choice;
  if (!options.task.empty()) choice.sequences = std::min(options.batch, options.sequences);
  const auto model = open_model(choice, options.common.threads);
  options.task.empty() ? eval_text(*model, options) : eval_task(*model, options);
}

}  // namespace

void add_eval_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("eval", "Accuracy or loss of a checkpoint");
  add_engine_flags(*verb, options->choice);
  verb->add_option("--task", options->task, "A synthetic task, on sequences not trained on")
      ->option_text("NAME[:...]");
  verb->add_option("--data", options->data, "Token shards, read as one text")
      ->option_text("PATH...");
  add_suite_flags(*verb, options->suite);
  add_number(*verb, {"--sequences", "Sequences of a task", 1, int64_t{1} << 40, "N [1000]"},
             options->sequences);
  add_number(*verb, {"--batch", "Sequences or items at once", 1, int64_t{1} << 20, "N [16]"},
             options->batch);
  add_common(*verb, options->common);
  verb->callback([options] { run_verb([&] { run_eval(*options); }); });
}

}  // namespace bmojo::cli
