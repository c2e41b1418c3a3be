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
#include "bmojo/eval/suite.h"
#include "bmojo/eval/suite_score.h"
#include "bmojo/eval/suite_tokens.h"
#include "bmojo/model/checkpoint.h"

namespace bmojo::cli {
namespace {

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

// Reads `batch` items at once, or windows of documents: an item may have any number of them.
std::vector<eval::Answers> ask(const eval::LanguageModel& model, const data::Tokenizer& tokenizer,
                               eval::Question kind, std::span<const eval::Item> items,
                               const SuiteOptions& options, size_t batch) {
  std::vector<std::vector<eval::Asked>> groups;
  std::vector<size_t> of;  // the item of each
  for (size_t i = 0; i < items.size(); ++i) {
    auto asked = eval::questions(items[i], kind, model.config(), tokenizer, options.max_length);
    if (kind == eval::Question::document)
      for (auto& window : asked) groups.push_back({std::move(window)});
    else
      groups.push_back(std::move(asked));
    of.resize(groups.size(), i);
  }
  std::vector<std::vector<eval::Likelihood>> got(items.size());
  for (size_t from = 0; from < groups.size(); from += batch) {
    const auto some = std::span(groups).subspan(from, std::min(batch, groups.size() - from));
    const auto answers = eval::likelihoods(model, some, check_interrupted);
    for (size_t i = 0; i < some.size(); ++i) {
      auto& own = got[of[from + i]];
      own.insert(own.end(), answers[i].begin(), answers[i].end());
    }
  }
  std::vector<eval::Answers> out;
  for (auto& own : got) out.push_back(eval::answers_of(kind, std::move(own)));
  return out;
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
  add_number(verb,
             {"--max-length", "Tokens of a suite's document that are read at once", 1,
              int64_t{1} << 40, "N [all]"},
             options.max_length);
}

void check_suite_flags(const SuiteOptions& options) {
  if (!options.name.empty())
    return base::require(!options.data.empty(), "--suite: needs --suite-data, got none");
  base::require(options.data.empty(), "--suite-data: needs --suite, got none");
  base::require(options.items.empty(), "--items: needs --suite, got none");
  base::require(options.limit == 0, "--limit: needs --suite, got none");
  base::require(options.max_length == 0, "--max-length: needs --suite, got none");
}

void eval_suite(const EngineChoice& choice, const Common& common, const SuiteOptions& options,
                int64_t batch) {
  const auto& suite = eval::find_suite(options.name);
  base::require(options.max_length == 0 || suite.question == eval::Question::document,
                "--max-length: cuts documents, got --suite {}", suite.name);
  const auto data = eval::read_suite(
      suite, options.data,
      options.limit > 0 ? static_cast<size_t>(options.limit) : std::numeric_limits<size_t>::max());
  size_t most = 1;  // texts of an item
  for (const auto& item : data.items) most = std::max(most, item.choices.size());
  auto sized = choice;
  sized.sequences = batch;
  if (suite.question != eval::Question::document)
    sized.sequences = std::min(batch, std::ssize(data.items)) * static_cast<int64_t>(most);
  const auto model = open_model(sized, common.threads);
  const auto tokenizer = tokenizer_for(Writing(), choice.model, model->config());
  base::require(tokenizer != nullptr, "--suite: needs a tokenizer, got none in the model's folder");
  ItemsFile file(
      options.items,
      options.items.empty() ? base::Json() : header_of(choice, options, *model, *tokenizer), data);
  auto answers = file.done();
  defer_interrupts();
  base::Progress progress("eval", "items", common.quiet);
  // Documents that are read whole take long: each is kept as soon as it is done.
  const bool is_whole = suite.question == eval::Question::document && options.max_length == 0;
  const size_t at_once = is_whole ? 1 : static_cast<size_t>(batch);
  while (answers.size() < data.items.size()) {
    const size_t first = answers.size(), count = std::min(at_once, data.items.size() - first);
    const auto more =
        ask(*model, *tokenizer, suite.question, std::span(data.items).subspan(first, count),
            options, static_cast<size_t>(batch));
    answers.insert(answers.end(), more.begin(), more.end());
    file.add(first, more);
    progress.update(std::ssize(answers), std::ssize(data.items));
  }
  print(data, answers, common.json);
}

}  // namespace bmojo::cli
