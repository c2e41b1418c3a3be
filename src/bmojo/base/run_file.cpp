#include "bmojo/base/run_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <regex>
#include <system_error>
#include <utility>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"

namespace bmojo::base {
namespace {

bool is_key_letter(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '-' || c == '.';
}

// A decimal number of TOML; which ones a key takes is the flag's to say. A _ parts digits.
bool is_number(const std::string& word) {
  static const std::regex kNumber(R"([+-]?(0|[1-9](_?\d)*)(\.\d(_?\d)*)?([eE][+-]?\d(_?\d)*)?)");
  return word.size() < 100 && std::regex_match(word, kNumber);  // its memory grows with the word
}

std::string utf8(uint32_t code) {
  constexpr std::array<uint32_t, 4> kFirst = {0x00, 0xc0, 0xe0, 0xf0};
  const size_t more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  std::string text(1, static_cast<char>(kFirst[more] | (code >> (6 * more))));
  for (size_t i = more; i-- > 0;) text += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3f));
  return text;
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& subject) : rest_(text), subject_(subject) {}

  std::vector<RunFileItem> parse() {
    std::vector<RunFileItem> items;
    for (skip_lines(); !rest_.empty(); skip_lines()) {
      require(next() != '[', "{}: must be key = value, got the table {}; a run file has none",
              where(), shown_rest());
      add_item(items);
    }
    return items;
  }

  std::vector<RunFileTable> parse_tables() {
    std::vector<RunFileTable> tables;
    for (skip_lines(); !rest_.empty(); skip_lines()) {
      if (next() == '[') {
        auto table = parse_table();
        for (const auto& before : tables)
          require(before.name != table.name, "{}: table {} must stand once, got it again after {}",
                  table.where, in_quotes(table.name), before.where);
        tables.push_back(std::move(table));
        continue;
      }
      require(!tables.empty(), "{}: must begin with a table such as [base], got {}", where(),
              shown_rest());
      add_item(tables.back().items);
    }
    return tables;
  }

 private:
  // The end of the text ends its last line.
  char next() const { return rest_.empty() ? '\n' : rest_.front(); }
  bool is_text() const { return next() == '"' || next() == '\''; }
  std::string where() const { return fmt::format("{}:{}", subject_, line_); }
  std::string shown_rest() const { return in_quotes(rest_.substr(0, rest_.find_first_of("\r\n"))); }

  void skip_blanks() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r"), rest_.size()));
    if (next() == '#') rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
  }
  void skip_lines() {
    for (skip_blanks(); rest_.starts_with('\n'); skip_blanks()) {
      rest_.remove_prefix(1);
      ++line_;
    }
  }

  void add_item(std::vector<RunFileItem>& items) {
    auto item = parse_item();
    for (const auto& before : items)
      require(before.key != item.key, "{}: key {} must stand once, got it again after {}",
              item.where, in_quotes(item.key), before.where);
    items.push_back(std::move(item));
  }

  RunFileTable parse_table() {
    RunFileTable table;
    table.where = where();
    const auto header = shown_rest();
    rest_.remove_prefix(1);
    const auto end = std::ranges::find_if_not(rest_, is_key_letter);
    table.name = std::string(rest_.begin(), end);
    rest_.remove_prefix(table.name.size());
    require(!table.name.empty() && next() == ']', "{}: table must be a name in [ ], got {}",
            table.where, header);
    rest_.remove_prefix(1);
    skip_blanks();
    require(next() == '\n', "{}: line must end behind the table's name, got {}", where(),
            shown_rest());
    return table;
  }

  RunFileItem parse_item() {
    RunFileItem item;
    item.where = where();
    item.key = parse_key();
    skip_blanks();
    require(next() == '=', "{}: key {} must be followed by = and a value, got {}", item.where,
            in_quotes(item.key), shown_rest());
    rest_.remove_prefix(1);
    skip_blanks();
    item.is_list = next() == '[';
    item.values = item.is_list ? parse_list() : std::vector<std::string>{parse_value()};
    skip_blanks();
    require(next() == '\n', "{}: line must end behind the value, got {}", where(), shown_rest());
    return item;
  }

  std::string parse_key() {
    if (is_text()) return parse_text();
    const auto end = std::ranges::find_if_not(rest_, is_key_letter);
    const std::string key(rest_.begin(), end);
    require(!key.empty(), "{}: must be key = value, got {}", where(), shown_rest());
    rest_.remove_prefix(key.size());
    return key;
  }

  std::string parse_value() {
    if (is_text()) return parse_text();
    std::string word(rest_.substr(0, rest_.find_first_of(" \t\r\n,]#")));
    require(word == "true" || word == "false" || is_number(word),
            "{}: value must be text in quotes, a number, true, false or a list of them, got {}",
            where(), in_quotes(word));
    rest_.remove_prefix(word.size());
    std::erase(word, '_');
    return word;
  }

  std::vector<std::string> parse_list() {
    std::vector<std::string> values;
    rest_.remove_prefix(1);
    for (skip_lines(); next() != ']'; skip_lines()) {
      values.push_back(parse_value());
      skip_lines();
      require(next() == ',' || next() == ']',
              "{}: list must go on with a comma or end with ], got {}", where(), shown_rest());
      if (next() == ',') rest_.remove_prefix(1);
    }
    rest_.remove_prefix(1);
    return values;
  }

  // "…" with escapes, or '…' as it stands.
  std::string parse_text() {
    const char quote = next();
    rest_.remove_prefix(1);
    std::string text;
    while (next() != quote) {
      if (next() == '\n') fail("{}: text must end with {} on its line, got none", where(), quote);
      if (quote == '"' && next() == '\\') {
        text += parse_escape();
      } else {
        const auto byte = static_cast<unsigned char>(next());
        require((byte >= 0x20 && byte != 0x7f) || byte == '\t',
                "{}: text must hold no control characters but tabs, got \\x{:02x}", where(), byte);
        text += next();
        rest_.remove_prefix(1);
      }
    }
    rest_.remove_prefix(1);
    return text;
  }

  std::string parse_escape() {
    constexpr std::string_view kLetters = "btnfr\"\\", kMeant = "\b\t\n\f\r\"\\";
    rest_.remove_prefix(1);
    const char letter = next();
    const auto at = kLetters.find(letter);
    require(at != kLetters.npos || letter == 'u' || letter == 'U',
            "{}: what follows a backslash must be b, t, n, f, r, u, U, a quote or a backslash, "
            "got {}",
            where(), shown_rest());
    rest_.remove_prefix(1);
    return at != kLetters.npos ? std::string(1, kMeant[at]) : parse_code(letter == 'u' ? 4 : 8);
  }

  std::string parse_code(size_t num_digits) {
    const auto digits = rest_.substr(0, num_digits);
    uint32_t code = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    const bool is_whole = error == std::errc() && end == digits.data() + digits.size();
    require(is_whole && digits.size() == num_digits && code > 0 && code <= 0x10ffff &&
                (code < 0xd800 || code > 0xdfff),
            "{}: character must be given by {} hexadecimal digits, got {}", where(), num_digits,
            in_quotes(digits));
    rest_.remove_prefix(num_digits);
    return utf8(code);
  }

  std::string_view rest_;
  const std::string& subject_;
  int line_ = 1;
};

}  // namespace

std::vector<RunFileItem> parse_run_file(std::string_view text, const std::string& subject) {
  return Parser(text, subject).parse();
}

std::vector<RunFileTable> parse_tables(std::string_view text, const std::string& subject) {
  return Parser(text, subject).parse_tables();
}

std::string toml_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04x}", byte);
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace bmojo::base
