#include "bmojo/eval/suite_score.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "bmojo/base/digest.h"
#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"
#include "bmojo/data/python_text.h"

namespace bmojo::eval {
namespace {

// The number of an item's likeliest choice when each is divided by its length.
template <typename Length>
int64_t likeliest(const Item& item, const Answers& answers, const Length& length) {
  int64_t best = 0;
  double most = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    const double each =
        answers[i].log_p / static_cast<double>(length(item.choices[i].continuation));
    if (i > 0 && !(each > most)) continue;
    most = each;
    best = static_cast<int64_t>(i);
  }
  return best;
}

// The mean of some numbers, and its standard error by their sample deviation.
Measured mean(std::string name, const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const auto value : values) sum += value;
  for (const auto value : values) squares += (value - sum / n) * (value - sum / n);
  Measured out{.name = std::move(name), .value = sum / n, .is_share = true};
  if (values.size() > 1) out.standard_error = std::sqrt(squares / (n - 1) / n);
  return out;
}

using Some = std::vector<std::pair<const Item*, const Answers*>>;

std::vector<Measured> measure_choices(const Suite& suite, const Some& some) {
  std::vector<double> plain, by_character, by_byte;
  for (const auto& [item, answers] : some) {
    const auto [first, second, third] = chosen(*item, *answers);
    plain.push_back(first == item->gold);
    by_character.push_back(second == item->gold);
    by_byte.push_back(third == item->gold);
  }
  if (!suite.is_normed) return {mean("acc", plain)};
  return {mean("acc", plain), mean("acc_norm", by_character), mean("acc_bytes", by_byte)};
}

std::vector<Measured> measure_words(const Some& some) {
  std::vector<double> log_p, right;
  for (const auto& [item, answers] : some) {
    log_p.push_back(answers->front().log_p);
    right.push_back(answers->front().is_greedy);
  }
  auto perplexity = mean("perplexity", log_p);
  perplexity.value = std::exp(-perplexity.value);
  // To first order: d exp(-m) = -exp(-m) dm.
  if (perplexity.standard_error) *perplexity.standard_error *= perplexity.value;
  perplexity.is_share = false;
  return {perplexity, mean("acc", right)};
}

std::vector<Measured> measure_texts(const Answering& answering, const Some& some) {
  std::vector<double> scores;
  for (const auto& [item, answers] : some)
    scores.push_back(answering.score(text_of(*item, *answers), item->golds));
  return {mean(std::string(answering.measure), scores)};
}

std::vector<Measured> measure_documents(const Some& some) {
  double nats = 0, words = 0, bytes = 0;
  for (const auto& [item, answers] : some) {
    nats -= answers->front().log_p;
    words += static_cast<double>(item->num_words);
    bytes += static_cast<double>(item->num_bytes);
  }
  return {{.name = "word_perplexity", .value = std::exp(nats / words)},
          {.name = "byte_perplexity", .value = std::exp(nats / bytes)},
          {.name = "bits_per_byte", .value = nats / bytes / std::numbers::ln2}};
}

std::string digest_of(const Item& item) {
  base::Json texts = base::Json::array();
  for (const auto& [context, continuation] : item.choices) texts.push_back({context, continuation});
  base::Json whole = {texts, item.golds.empty() ? base::Json(item.gold) : base::Json(item.golds)};
  if (item.document) whole.push_back(base::digest_of_text(*item.document));
  return base::digest_of_text(whole.dump());
}

}  // namespace

Answers answers_of(Question kind, std::span<const Likelihood> likelihoods) {
  Answers out;
  if (kind == Question::document) out.emplace_back();
  for (const auto& each : likelihoods)
    if (kind == Question::document)
      out[0] += each;
    else
      out.push_back({each});
  return out;
}

std::string text_of(const Item& item, const Answers& answers) {
  if (answers.size() == 1) return answers[0].text;
  const auto best = static_cast<size_t>(chosen(item, answers).plain);
  return std::string(data::strip(item.choices[best].continuation));
}

Chosen chosen(const Item& item, const Answers& answers) {
  // Behind the space that stands before each choice.
  const auto text = [](std::string_view continuation) { return continuation.substr(1); };
  return {
      likeliest(item, answers, [](std::string_view) { return 1; }),
      likeliest(item, answers, [&](std::string_view c) { return data::count_characters(text(c)); }),
      likeliest(item, answers, [&](std::string_view c) { return std::ssize(text(c)); })};
}

std::vector<Measured> measure_part(const SuiteData& data, std::span<const Answers> answers,
                                   size_t part) {
  Some some;
  for (size_t i = 0; i < answers.size(); ++i)
    if (data.items[i].part == part) some.emplace_back(&data.items[i], &answers[i]);
  switch (data.suite->question) {
    case Question::choice:
      return measure_choices(*data.suite, some);
    case Question::last_word:
      return measure_words(some);
    case Question::answer:
      return measure_texts(data.suite->answering, some);
    case Question::document:
      break;
  }
  return measure_documents(some);
}

std::vector<Measured> measure(const SuiteData& data, std::span<const Answers> answers) {
  auto out = measure_part(data, answers, 0);
  const auto num_parts = static_cast<double>(data.parts.size());
  for (auto& total : out)
    if (total.standard_error) *total.standard_error *= *total.standard_error;
  for (size_t part = 1; part < data.parts.size(); ++part) {
    const auto more = measure_part(data, answers, part);
    for (size_t i = 0; i < out.size(); ++i) {
      out[i].value += more[i].value;
      const auto error = more[i].standard_error;
      if (out[i].standard_error && error)
        *out[i].standard_error += *error * *error;
      else
        out[i].standard_error.reset();
    }
  }
  for (auto& total : out) {
    total.value /= num_parts;
    if (total.standard_error) total.standard_error = std::sqrt(*total.standard_error) / num_parts;
  }
  return out;
}

base::Json item_line(const Suite& suite, const Item& item, int64_t index, const Answers& answers) {
  base::Json line = {{"index", index},
                     {"item", digest_of(item)},
                     {"log_likelihoods", base::Json::array()},
                     {"greedy", base::Json::array()},
                     {"tokens", base::Json::array()}};
  for (const auto& answer : answers) {
    line["log_likelihoods"].push_back(answer.log_p);
    line["greedy"].push_back(answer.is_greedy);
    line["tokens"].push_back(answer.num_tokens);
  }
  if (suite.question == Question::document) {
    line["words"] = item.num_words;
    line["bytes"] = item.num_bytes;
  } else if (suite.question == Question::answer) {
    const auto text = text_of(item, answers);
    line["text"] = text;
    line["golds"] = item.golds;
    line[std::string(suite.answering.measure)] = suite.answering.score(text, item.golds);
  } else if (suite.question == Question::last_word) {
    line["acc"] = static_cast<int>(answers[0].is_greedy);
  } else {
    const auto [plain, by_character, by_byte] = chosen(item, answers);
    line["gold"] = item.gold;
    line["choice"] = plain;
    line["acc"] = static_cast<int>(plain == item.gold);
    if (!suite.is_normed) return line;
    line["choice_norm"] = by_character;
    line["acc_norm"] = static_cast<int>(by_character == item.gold);
    line["choice_bytes"] = by_byte;
    line["acc_bytes"] = static_cast<int>(by_byte == item.gold);
  }
  return line;
}

Answers answers_of_line(const base::Json& line, const Item& item, int64_t index,
                        const std::string& subject) {
  const auto fits = [&](const char* name, auto is_right) {
    return line.contains(name) && line[name].is_array() &&
           line[name].size() == item.choices.size() && std::ranges::all_of(line[name], is_right);
  };
  const bool is_line = line.is_object() && line.contains("index") && line.contains("item") &&
                       fits("log_likelihoods", [](const auto& x) { return x.is_number(); }) &&
                       fits("greedy", [](const auto& x) { return x.is_boolean(); }) &&
                       fits("tokens", [](const auto& x) { return x.is_number_integer(); }) &&
                       (item.golds.empty() || (line.contains("text") && line["text"].is_string()));
  base::require(is_line, "{}: must be a line of --items with {} choices, got {}", subject,
                item.choices.size(), base::printable(line.dump(), 60));
  base::require(line["index"] == index && line["item"] == digest_of(item),
                "{}: must be of item {}, {}, got another item; give a new file", subject, index,
                item.where);
  Answers answers;
  for (size_t i = 0; i < item.choices.size(); ++i)
    answers.push_back({{line["log_likelihoods"][i].get<double>(), line["greedy"][i].get<bool>(),
                        line["tokens"][i].get<int64_t>()},
                       item.golds.empty() ? "" : line["text"].get<std::string>()});
  return answers;
}

}  // namespace bmojo::eval
