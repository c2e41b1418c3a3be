#include "bmojo/eval/suite_files.h"

#include <algorithm>
#include <utility>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/input.h"
#include "bmojo/base/number.h"
#include "bmojo/data/python_text.h"
#include "bmojo/data/unicode.h"
#include "bmojo/eval/suite_rows.h"
#include "bmojo/eval/suite_text.h"

namespace bmojo::eval {
namespace fs = std::filesystem;
namespace {

std::vector<Choice> choices_of(const std::string& context, const std::vector<std::string>& texts) {
  std::vector<Choice> choices;
  for (const auto& text : texts) choices.push_back({context, " " + text});
  return choices;
}

// A line of a text file, without white space around it.
struct Lines {
  explicit Lines(const fs::path& file) : reader(file.string()) {}
  bool next() {
    if (!reader.next(buffer)) return false;
    base::require(data::find_utf8_fault(buffer).at == buffer.size(),
                  "{}: must be UTF-8, got other bytes", reader.where());
    line = data::strip(buffer);
    return true;
  }
  std::string_view need(const char* what) {
    const bool is_there = next() && !line.empty();
    base::require(is_there, "{}: must be {}, got none", reader.where(), what);
    return line;
  }

  base::LineReader reader;
  std::string buffer;
  std::string_view line;
};

Item hellaswag_item(std::string where, const std::string& context,
                    const std::vector<std::string>& endings, int64_t gold) {
  std::vector<std::string> cleaned;
  for (const auto& ending : endings) {
    cleaned.push_back(clean_hellaswag(ending));
    base::require(!cleaned.back().empty(), "{}: endings must not be empty, got {}", where,
                  base::in_quotes(ending));
  }
  return {.where = std::move(where),
          .choices = choices_of(clean_hellaswag(context), cleaned),
          .gold = gold};
}

// Six lines an item: context, number of the right ending, four endings.
void read_hellaswag_text(const fs::path& file, size_t limit, std::vector<Item>& items) {
  Lines lines(file);
  for (size_t i = 0; i < limit && lines.next(); ++i) {
    const auto where = lines.reader.where();
    base::require(!lines.line.empty(), "{}: must be a context, got none", where);
    const std::string context(lines.line);
    const auto number = lines.need("the right ending's number, 0 to 3");
    const auto gold = base::parse_number<int64_t>(number, lines.reader.where(), 0, 3);
    std::vector<std::string> endings;
    for (int j = 0; j < 4; ++j) endings.emplace_back(lines.need("an ending"));
    items.push_back(hellaswag_item(where, context, endings, gold));
  }
}

// One number a line, beside a file that has no labels itself.
std::vector<int64_t> read_labels(const fs::path& file, size_t limit) {
  std::vector<int64_t> labels;
  Lines lines(file);
  while (labels.size() < limit && lines.next())
    labels.push_back(base::parse_number<int64_t>(lines.line, lines.reader.where(), 0, 1));
  return labels;
}

}  // namespace

void read_lambada(const fs::path& file, size_t limit, std::vector<Item>& items) {
  for_each_row(file, limit, [&](const Row& row) {
    const auto text = row.some_text("text");
    const size_t space = text.rfind(' ');
    const auto word = text.substr(space + 1);  // npos + 1 = 0: the text is one word
    base::require(!word.empty(), "{}: text must end with a word, got a space", row.where());
    const auto context = space == text.npos ? "" : text.substr(0, space);
    items.push_back({.where = row.where(), .choices = choices_of(context, {word})});
  });
}

void read_hellaswag(const fs::path& file, size_t limit, std::vector<Item>& items) {
  if (file.extension() == ".txt") return read_hellaswag_text(file, limit, items);
  for_each_row(file, limit, [&](const Row& row) {
    const auto endings = row.texts("endings");
    const auto context = row.text("activity_label") + ": " + row.text("ctx_a") + " " +
                         data::capitalized(row.text("ctx_b"));
    items.push_back(
        hellaswag_item(row.where(), context, endings, row.number("label", 0, endings.size())));
  });
}

void read_piqa(const fs::path& file, size_t limit, std::vector<Item>& items) {
  const auto labels_file = file.parent_path() / (file.stem().string() + "_labels.lst");
  std::vector<int64_t> labels;
  if (fs::exists(labels_file)) labels = read_labels(labels_file, limit);
  size_t number = 0;
  for_each_row(file, limit, [&](const Row& row) {
    base::require(number < labels.size() || row.has("label"),
                  "{}: must have a label, got none here and {} in {}", row.where(), labels.size(),
                  base::shown(labels_file));
    const auto gold = row.has("label") ? row.number("label", 0, 2) : labels[number];
    ++number;
    items.push_back({.where = row.where(),
                     .choices = choices_of("Question: " + row.text("goal") + "\nAnswer:",
                                           {row.some_text("sol1"), row.some_text("sol2")}),
                     .gold = gold});
  });
}

void read_arc(const fs::path& file, size_t limit, std::vector<Item>& items) {
  for_each_row(file, limit, [&](const Row& row) {
    if (row.has("query")) {
      const auto choices = row.texts("choices");
      items.push_back({.where = row.where(),
                       .choices = choices_of(row.some_text("query") + "\nAnswer:", choices),
                       .gold = row.number("gold", 0, choices.size())});
      return;
    }
    const auto choices = row.object("choices");
    const auto texts = choices.texts("text"), labels = choices.texts("label");
    const auto right = std::ranges::find(labels, row.text("answerKey")) - labels.begin();
    base::require(labels.size() == texts.size() && right < std::ssize(labels),
                  "{}: answerKey must be one of the {} labels, got {} of {}", row.where(),
                  texts.size(), base::in_quotes(row.text("answerKey")), labels.size());
    items.push_back(
        {.where = row.where(),
         .choices = choices_of("Question: " + row.some_text("question") + "\nAnswer:", texts),
         .gold = right});
  });
}

// Partial evaluation: the options stand in the context, and what follows them is asked for.
void read_winogrande(const fs::path& file, size_t limit, std::vector<Item>& items) {
  for_each_row(file, limit, [&](const Row& row) {
    Item item{.where = row.where()};
    if (row.has("context_options")) {
      const auto continuation = " " + row.some_text("continuation");
      for (const auto& context : row.texts("context_options"))
        item.choices.push_back({context, continuation});
      item.gold = row.number("gold", 0, item.choices.size());
    } else {
      const auto sentence = row.text("sentence");
      const size_t gap = sentence.find('_');
      base::require(gap != sentence.npos, "{}: sentence must have a gap _, got none", row.where());
      const std::string rest(data::strip(std::string_view(sentence).substr(gap + 1)));
      base::require(!rest.empty(), "{}: sentence must go on behind its gap _, got its end",
                    row.where());
      for (const auto* option : {"option1", "option2"})
        item.choices.push_back({sentence.substr(0, gap) + row.some_text(option), " " + rest});
      item.gold = row.number("answer", 1, 2) - 1;
    }
    items.push_back(std::move(item));
  });
}

void read_blimp(const fs::path& file, size_t limit, std::vector<Item>& items) {
  for_each_row(file, limit, [&](const Row& row) {
    items.push_back({.where = row.where(),
                     .choices = choices_of(
                         "", {row.some_text("sentence_good"), row.some_text("sentence_bad")})});
  });
}

void read_swde(const fs::path& file, size_t limit, std::vector<Item>& items) {
  for_each_row(file, limit, [&](const Row& row) {
    const auto stripped = [&](const char* name) {
      const auto text = row.text(name);
      const std::string inner(data::strip(text));
      base::require(!inner.empty(), "{}: {} must not be empty, got {}", row.where(), name,
                    base::in_quotes(text));
      return inner;
    };
    items.push_back(
        {.where = row.where(), .choices = {{stripped("text"), ""}}, .golds = {stripped("value")}});
  });
}

void read_wikitext(const fs::path& file, size_t limit, std::vector<Item>& items) {
  const auto add = [&](std::string where, const std::string& page) {
    base::require(!data::strip(page).empty(), "{}: page must not be empty, got white space", where);
    items.push_back({.where = std::move(where),
                     .choices = {{"", detokenize_wikitext(page)}},
                     .num_words = data::count_words(page),
                     .num_bytes = std::ssize(page)});
  };
  if (file.extension() != ".txt")
    return for_each_row(file, limit, [&](const Row& row) { add(row.where(), row.text("page")); });
  const auto text = base::read_text(file);
  const auto fault = data::find_utf8_fault(text);
  base::require(fault.at == text.size(), "{}: must be UTF-8, got other bytes at {}",
                base::shown(file), fault.at);
  const auto pages = wikitext_pages(text);
  for (size_t i = 0; i < std::min(limit, pages.size()); ++i)
    add(fmt::format("{}, page {}", base::shown(file), i + 1), pages[i]);
}

}  // namespace bmojo::eval
