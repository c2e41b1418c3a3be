#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bmojo::base {

// `key = value` of a run file.
struct RunFileItem {
  std::string key;
  std::vector<std::string> values;  // one, or those of a list; texts without their quotes
  bool is_list = false;
  std::string where;  // "FILE:LINE", for messages
};

// Run files are TOML with neither tables nor texts of several lines: a value is a text, a decimal
// number, true, false or a list of them. Error with file and line for anything else, and for a key
// that stands twice. `subject` names the file.
std::vector<RunFileItem> parse_run_file(std::string_view text, const std::string& subject);

// `[name]` and the items below it.
struct RunFileTable {
  std::string name;
  std::string where;
  std::vector<RunFileItem> items;
};

// The same with tables, each named once; nothing may stand above the first.
std::vector<RunFileTable> parse_tables(std::string_view text, const std::string& subject);

// A text as such a file has it, in quotes.
std::string toml_text(std::string_view text);

}  // namespace bmojo::base
