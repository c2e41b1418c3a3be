// Suites that ask about long documents, in two layouts of their files: a document a line with all
// its questions, as L-Eval has it, and a question a line before its document, as SCROLLS has it.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"
#include "bmojo/data/python_text.h"
#include "bmojo/eval/suite_answer.h"
#include "bmojo/eval/suite_files.h"
#include "bmojo/eval/suite_rows.h"

namespace bmojo::eval {
namespace fs = std::filesystem;
namespace {

using base::require;

struct About {
  std::string where;
  std::shared_ptr<const std::string> document;
  std::string question;
  std::vector<std::string> golds;  // each of them is right
  std::string id = {};             // SCROLLS has a line for each right answer
};

struct Layout {
  // Where SCROLLS' question ends: at the blank line before its document.
  size_t (*question_end)(std::string_view input);
  bool is_stripped;  // the document
};

std::shared_ptr<const std::string> shared_text(std::string_view text, const Layout& layout,
                                               const std::string& where) {
  if (layout.is_stripped) text = data::strip(text);
  require(!text.empty(), "{}: input must hold a document, got none", where);
  return std::make_shared<const std::string>(text);
}

// A text, or several of which each is right.
std::vector<std::string> golds_of(const base::Json& value, const std::string& where,
                                  const char* name) {
  const auto list = value.is_array() ? value : base::Json::array({value});
  const bool fits = !list.empty() && std::ranges::all_of(list, [](const auto& each) {
    return each.is_string() && !each.template get_ref<const std::string&>().empty();
  });
  require(fits, "{}: {} must hold texts that are not empty, got {}", where, name,
          base::printable(value.dump(), 60));
  return list.get<std::vector<std::string>>();
}

// A question that stands there several times has several right answers.
void add_document(const Row& row, const Layout& layout, std::vector<About>& out) {
  // Others than these are judged by people or models, and repeat documents.
  const auto how = row.has("evaluation") ? row.text("evaluation") : "f1";
  if (how != "f1" && how != "exam") return;
  const auto document = shared_text(row.some_text("input"), layout, row.where());
  const auto questions = row.texts("instructions", 1);
  const auto& outputs = row.field("outputs");
  require(outputs.is_array() && outputs.size() == questions.size(),
          "{}: outputs must be as many as the {} instructions, got {}", row.where(),
          questions.size(), base::printable(outputs.dump(), 60));
  const auto begin = std::ssize(out);
  for (size_t i = 0; i < questions.size(); ++i) {
    const auto golds = golds_of(outputs[i], row.where(), "outputs");
    const auto same = std::find_if(out.begin() + begin, out.end(), [&](const About& other) {
      return other.question == questions[i];
    });
    if (same != out.end())
      same->golds.insert(same->golds.end(), golds.begin(), golds.end());
    else
      out.push_back(
          {fmt::format("{}, question {}", row.where(), i + 1), document, questions[i], golds});
  }
}

void add_question(const Row& row, const Layout& layout, std::vector<About>& out) {
  const auto golds = golds_of(row.field("output"), row.where(), "output");
  const auto id = row.has("id") ? row.text("id") : "";
  const auto input = row.some_text("input");
  const size_t end = layout.question_end(input);
  require(end != input.npos, "{}: input must be a question, a blank line and a document, got {}",
          row.where(), base::in_quotes(input));
  auto document = shared_text(std::string_view(input).substr(end + 2), layout, row.where());
  const bool goes_on = !out.empty() && *out.back().document == *document;
  if (!out.empty() && !id.empty() && out.back().id == id) {
    auto& last = out.back();
    require(goes_on && last.question == input.substr(0, end),
            "{}: lines of one id must have one input, got another behind id {}", row.where(),
            base::in_quotes(id));
    last.golds.insert(last.golds.end(), golds.begin(), golds.end());
    return;
  }
  if (goes_on) document = out.back().document;
  out.push_back({row.where(), document, input.substr(0, end), golds, id});
}

std::vector<About> read_questions(const fs::path& file, size_t limit, const Layout& layout) {
  std::vector<About> out;
  Rows rows(file);
  while (out.size() <= limit) {  // the line behind the last question may have an answer to it
    const auto row = rows.next();
    if (!row) break;
    row->has("instructions") ? add_document(*row, layout, out) : add_question(*row, layout, out);
  }
  out.resize(std::min(limit, out.size()));
  return out;
}

std::string asked_about(std::string_view question) {
  return fmt::format("\n\nQuestion: {}\nAnswer:", question);
}

// --- QuALITY -------------------------------------------------------------------------------------

constexpr std::array kMarks = {"(A)", "(B)", "(C)", "(D)"};

struct Options {
  std::string question;
  std::vector<std::string> choices;
};

// Behind `from`, where a mark begins a line; white space may stand before it.
size_t find_mark(std::string_view text, std::string_view mark, size_t from) {
  for (size_t at = text.find(mark, from); at != text.npos; at = text.find(mark, at + 1)) {
    const size_t before = at == 0 ? text.npos : text.find_last_not_of(" \t", at - 1);
    if (before == text.npos || text[before] == '\n') return at;
  }
  return text.npos;
}

// "question\n\n (A) one\n (B) two\n (C) three\n (D) four"
Options options_of(std::string_view text, const std::string& where) {
  std::array<size_t, kMarks.size() + 1> at{};
  at.back() = text.size();
  for (size_t i = 0; i < kMarks.size(); ++i) {
    at[i] = find_mark(text, kMarks[i], i == 0 ? 0 : at[i - 1]);
    require(at[i] != text.npos, "{}: question must have choices (A) to (D), a line each, got {}",
            where, base::in_quotes(text));
  }
  Options out;
  const auto head = text.substr(0, at[0]);
  const size_t gap = head.find("\n\n");
  out.question = gap == head.npos ? data::strip_end(head) : head.substr(0, gap);
  for (size_t i = 0; i < kMarks.size(); ++i) {
    const size_t from = at[i] + std::string_view(kMarks[i]).size();
    out.choices.push_back(data::single_spaced(text.substr(from, at[i + 1] - from)));
    require(!out.choices.back().empty(), "{}: choices must not be empty, got {} of {}", where,
            kMarks[i], base::in_quotes(text));
  }
  return out;
}

// The right answer is a choice's text, also with its mark.
int64_t gold_of(const About& about, const std::vector<std::string>& choices) {
  require(about.golds.size() == 1, "{}: question must have one right answer, got {}", about.where,
          about.golds.size());
  const auto gold = data::single_spaced(about.golds[0]);
  for (size_t i = 0; i < choices.size(); ++i)
    if (gold == choices[i] || gold == kMarks[i] + (" " + choices[i]))
      return static_cast<int64_t>(i);
  base::fail("{}: output must be one of the choices, got {}", about.where, base::in_quotes(gold));
}

size_t end_of_options(std::string_view input) {
  return input.find("\n\n", input.find("(D)", input.find("\n\n")));
}

// --- Qasper and NarrativeQA ----------------------------------------------------------------------

Item answered(const About& about) {
  return {.where = about.where,
          .choices = {{asked_about(about.question), ""}},
          .golds = about.golds,
          .document = about.document};
}

size_t end_of_line(std::string_view input) { return input.find("\n\n"); }

bool is_yes_or_no(const std::string& gold) {
  const auto words = answer_words(gold);
  return words.size() == 1 && (words[0] == "yes" || words[0] == "no");
}

}  // namespace

void read_quality(const fs::path& file, size_t limit, std::vector<Item>& items) {
  for (const auto& about : read_questions(file, limit, {end_of_options, true})) {
    const auto [question, choices] = options_of(about.question, about.where);
    Item item{.where = about.where, .document = about.document};
    for (const auto& choice : choices)
      item.choices.push_back({asked_about(question), " " + choice});
    item.gold = gold_of(about, choices);
    items.push_back(std::move(item));
  }
}

void read_qasper(const fs::path& file, size_t limit, std::vector<Item>& items) {
  for (const auto& about : read_questions(file, limit, {end_of_line, false})) {
    items.push_back(answered(about));
    const auto context = items.back().choices[0].context;
    if (std::ranges::all_of(about.golds, is_yes_or_no))
      items.back().choices = {{context, " no"}, {context, " yes"}};
  }
}

void read_narrativeqa(const fs::path& file, size_t limit, std::vector<Item>& items) {
  for (const auto& about : read_questions(file, limit, {end_of_line, false}))
    items.push_back(answered(about));
}

}  // namespace bmojo::eval
