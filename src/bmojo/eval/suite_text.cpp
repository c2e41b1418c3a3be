#include "bmojo/eval/suite_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "bmojo/data/python_text.h"

namespace bmojo::eval {
namespace {

using data::replaced;
using Replacement = std::pair<std::string_view, std::string_view>;

// re.sub(r"\[.*?\]", "", text): a dot is no line break.
std::string without_brackets(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    const size_t end = text[at] == '[' ? text.find_first_of("]\n", at) : text.npos;
    if (end != text.npos && text[end] == ']')
      at = end;
    else
      out += text[at];
  }
  return out;
}

// re.sub(r"\(\s*([^\)]*?)\s*\)", r"(\1)", text), with these two in place of the parentheses.
std::string trimmed_within(std::string_view text, char open, char close) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    out += text[at];
    if (text[at] != open) continue;
    const size_t end = text.find(close, at + 1);
    if (end == text.npos) continue;
    out += data::strip(text.substr(at + 1, end - at - 1));
    out += close;
    at = end;
  }
  return out;
}

// re.sub(r"/' [0-9]/", r"/'[0-9]/", text): what stands there is written as it is, the digit lost.
std::string without_digit(std::string_view text) {
  constexpr std::string_view kBefore = "/' ";
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto rest = text.substr(at);
    const bool matches = rest.starts_with(kBefore) && rest.size() >= 5 &&
                         std::isdigit(static_cast<unsigned char>(rest[3])) != 0 && rest[4] == '/';
    if (!matches) {
      out += text[at];
      continue;
    }
    out += "/'[0-9]/";
    at += 4;
  }
  return out;
}

constexpr std::array<Replacement, 9> kMarks = {{{" @-@ ", "-"},
                                                {" @,@ ", ","},
                                                {" @.@ ", "."},
                                                {" : ", ": "},
                                                {" ; ", "; "},
                                                {" . ", ". "},
                                                {" ! ", "! "},
                                                {" ? ", "? "},
                                                {" , ", ", "}}};
constexpr std::array<Replacement, 8> kRest = {{{"= = = =", "===="},
                                               {"= = =", "==="},
                                               {"= =", "=="},
                                               {" \xc2\xb0 ", "\xc2\xb0"},
                                               {" \n", "\n"},
                                               {"\n ", "\n"},
                                               {" N ", " 1 "},
                                               {" 's", "'s"}}};

bool is_title(std::string_view line) {
  const auto text = replaced(replaced(line, "= = =", "==="), "= =", "==");
  const auto stripped = data::strip(text);
  return stripped.starts_with("= ") && stripped.ends_with(" =");
}

}  // namespace

std::string clean_hellaswag(std::string_view text) {
  const auto titled = replaced(data::strip(text), " [title]", ". ");
  return replaced(without_brackets(titled), "  ", " ");
}

std::string detokenize_wikitext(std::string_view page) {
  auto text = without_digit(replaced(page, "s '", "s'"));
  for (const auto& [from, to] : kMarks) text = replaced(text, from, to);
  for (const auto& pair : {"()", "[]", "{}", "\"\"", "''"})
    text = trimmed_within(text, pair[0], pair[1]);
  for (const auto& [from, to] : kRest) text = replaced(text, from, to);
  return text;
}

std::vector<std::string> wikitext_pages(std::string_view text) {
  std::vector<std::string> pages;
  std::string page;
  const auto end_page = [&] {
    if (!data::strip(page).empty()) pages.push_back(page);
    page.clear();
  };
  bool is_first = true;  // of its page
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const auto line = text.substr(at, end - at);
    if (is_title(line)) {
      end_page();
      is_first = true;
    }
    if (!is_first) page += '\n';
    page += line;
    is_first = false;
    at = end + 1;
  }
  end_page();
  return pages;
}

}  // namespace bmojo::eval
