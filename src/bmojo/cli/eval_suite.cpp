#include "bmojo/cli/eval_suite.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "bmojo/base/digest.h"
#include "bmojo/base/error.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/items_file.h"
#include "bmojo/cli/writing.h"
#include "bmojo/eval/prompt.h"
#include "bmojo/eval/suite.h"
#include "bmojo/eval/suite_ask.h"
#include "bmojo/eval/suite_score.h"
#include "bmojo/model/checkpoint.h"

namespace bmojo::cli {
namespace {

int64_t length_of(const SuiteOptions& options) {
  return options.length > 0 ? options.length : eval::Making().length;
}

// Whatever the log-likelihoods depend on.
base::Json header_of(const EngineChoice& choice, const SuiteOptions& options,
                     const eval::LanguageModel& model, const data::Tokenizer& tokenizer) {
  using model::Checkpoint;
  const Checkpoint checkpoint(model::checkpoint_folder(choice.model), Checkpoint::Packed::allowed);
  return {{"suite", options.name},
          {"model", model::digest_of(checkpoint.tensors)},
          {"config", base::digest_of_text(model::to_json(model.config()).dump())},
          {"tokenizer", tokenizer.name() + " " + tokenizer.digest()},
          {"weights", model.weight_type()},
          {"engine", choice.engine},
          {"max_length", options.max_length}};
}

// Texts that are made depend on the tokenizer, too, whose digest is in the header already.
base::Json header_of_made(base::Json header, const SuiteOptions& options, int64_t seed) {
  header["length"] = length_of(options);
  header["seed"] = seed;
  return header;
}

// 500: as many as lm-evaluation-harness makes.
int64_t count_made(const SuiteOptions& options) { return options.limit > 0 ? options.limit : 500; }

eval::SuiteData read_items(const SuiteOptions& options, const eval::Suite& suite) {
  const auto limit = static_cast<size_t>(options.limit);
  return eval::read_suite(suite, options.data,
                          limit > 0 ? limit : std::numeric_limits<size_t>::max());
}

eval::SuiteData make_items(const SuiteOptions& options, const eval::Suite& suite, int64_t seed,
                           bool quiet, const model::Config& config,
                           const data::Tokenizer& tokenizer) {
  const auto count_tokens = [&](const std::string& text) {
    return std::ssize(eval::prompt_ids(config, tokenizer, text, "--suite"));
  };
  const eval::Making making{.count_tokens = count_tokens,
                            .length = length_of(options),
                            .answer_tokens = suite.answering.max_tokens,
                            .seed = static_cast<uint64_t>(seed)};
  base::Progress progress("making", "texts", quiet);
  const int64_t count = count_made(options);
  return eval::make_suite(suite, making, static_cast<size_t>(count), [&](size_t made) {
    check_interrupted();
    progress.update(static_cast<int64_t>(made), count);
  });
}

// How many memories are needed at once.
int64_t count_sequences(const eval::SuiteData& data, int64_t batch) {
  if (data.suite->question == eval::Question::document) return batch;
  size_t most = 1;  // texts of an item
  for (const auto& item : data.items) most = std::max(most, item.choices.size());
  const int64_t num_documents = data.items[0].document ? 1 : 0;  // whose beginning is kept
  return std::min(batch, std::ssize(data.items)) * static_cast<int64_t>(most) + num_documents;
}

base::Json to_json(const std::vector<eval::Measured>& measures) {
  base::Json json = base::Json::object();
  for (const auto& [name, value, error, is_share] : measures) {
    json[name] = value;
    if (is_share || error) json[name + "_stderr"] = error ? base::Json(*error) : base::Json();
  }
  return json;
}

std::string to_text(const eval::Measured& measured) {
  const double scale = measured.is_share ? 100 : 1;
  auto text = fmt::format("{:.{}f}{}", scale * measured.value, measured.is_share ? 2 : 4,
                          measured.is_share ? " %" : "");
  if (measured.standard_error) text += fmt::format(" ± {:.2f}", scale * *measured.standard_error);
  return text;
}

void print(const eval::SuiteData& data, std::span<const eval::Answers> answers, bool as_json) {
  const auto measures = eval::measure(data, answers);
  if (as_json) {
    base::Json json = {{"suite", data.suite->name}, {"items", answers.size()}};
    int64_t num_tokens = 0;
    for (const auto& each : answers)
      for (const auto& answer : each) num_tokens += answer.num_tokens;
    json["tokens"] = num_tokens;
    json.update(to_json(measures));
    if (data.suite->has_parts)
      for (size_t i = 0; i < data.parts.size(); ++i)
        json["parts"][data.parts[i]] = to_json(eval::measure_part(data, answers, i));
    return print_json(json);
  }
  fmt::print("{}, {} items\n", data.suite->title, base::grouped(std::ssize(answers)));
  for (const auto& measured : measures) fmt::print("{:<16} {}\n", measured.name, to_text(measured));
  if (!data.suite->has_parts) return;
  fmt::print("\n");
  for (size_t i = 0; i < data.parts.size(); ++i)
    fmt::print("{:<18}  {}\n", to_text(eval::measure_part(data, answers, i)[0]), data.parts[i]);
}

void check_suite(const SuiteOptions& options, const eval::Suite& suite) {
  const bool is_made = suite.make != nullptr;
  base::require(is_made || !options.data.empty(), "--suite: needs --suite-data, got none");
  base::require(!is_made || options.data.empty(),
                "--suite-data: needs a suite that is read, got --suite {}, which is made",
                suite.name);
  base::require(is_made || options.length == 0,
                "--length: needs a suite that is made, niah_single or ruler_vt, got --suite {}",
                suite.name);
  base::require(options.max_length == 0 || suite.question == eval::Question::document,
                "--max-length: cuts documents, got --suite {}", suite.name);
}

}  // namespace

void add_suite_flags(CLI::App& verb, SuiteOptions& options) {
  verb.add_option("--suite", options.name, "A known suite, such as lambada or hellaswag")
      ->option_text("NAME");
  verb.add_option("--suite-data", options.data, "Its file, or the folder that holds it")
      ->option_text("PATH");
  verb.add_option("--items", options.items, "Keep its results item by item, and go on with them")
      ->option_text("F.jsonl");
  add_number(verb, {"--limit", "The first items of a suite", 1, int64_t{1} << 40, "N [all]"},
             options.limit);
  add_number(
      verb,
      {"--length", "Tokens of a text of niah_single or ruler_vt", 1, int64_t{1} << 24, "N [4096]"},
      options.length);
  add_number(verb,
             {"--max-length", "Tokens of a suite's document that are read at once", 1,
              int64_t{1} << 40, "N [all]"},
             options.max_length);
}

void check_suite_flags(const SuiteOptions& options) {
  if (!options.name.empty()) return check_suite(options, eval::find_suite(options.name));
  base::require(options.data.empty(), "--suite-data: needs --suite, got none");
  base::require(options.items.empty(), "--items: needs --suite, got none");
  base::require(options.limit == 0, "--limit: needs --suite, got none");
  base::require(options.length == 0, "--length: needs --suite, got none");
  base::require(options.max_length == 0, "--max-length: needs --suite, got none");
}

void eval_suite(const EngineChoice& choice, const Common& common, const SuiteOptions& options,
                int64_t batch) {
  const auto& suite = eval::find_suite(options.name);
  auto data = suite.make == nullptr ? read_items(options, suite) : eval::SuiteData();
  auto sized = choice;
  sized.sequences =
      suite.make == nullptr ? count_sequences(data, batch) : std::min(batch, count_made(options));
  const auto model = open_model(sized, common.threads);
  const auto tokenizer = tokenizer_for(Writing(), choice.model, model->config());
  base::require(tokenizer != nullptr, "--suite: needs a tokenizer, got none in the model's folder");
  base::Json header;
  if (!options.items.empty()) header = header_of(choice, options, *model, *tokenizer);
  if (suite.make != nullptr) {
    data = make_items(options, suite, common.seed, common.quiet, model->config(), *tokenizer);
    header = header_of_made(std::move(header), options, common.seed);
  }
  ItemsFile file(options.items, header, data);
  auto answers = file.done();
  defer_interrupts();
  base::Progress progress("eval", "items", common.quiet);
  const eval::Asking asking{.model = *model,
                            .tokenizer = *tokenizer,
                            .suite = suite,
                            .batch = static_cast<size_t>(batch),
                            .max_length = options.max_length,
                            .between_parts = check_interrupted};
  eval::ask(asking, std::span(data.items).subspan(answers.size()), [&](const auto& more) {
    file.add(answers.size(), more);
    answers.insert(answers.end(), more.begin(), more.end());
    progress.update(std::ssize(answers), std::ssize(data.items));
  });
  print(data, answers, common.json);
}

}  // namespace bmojo::cli
