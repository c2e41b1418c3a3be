#include "bmojo/eval/suite_rows.h"

#include <algorithm>
#include <utility>

#include "bmojo/base/error.h"
#include "bmojo/base/number.h"
#include "bmojo/base/printable.h"

namespace bmojo::eval {
namespace {

std::string shown(const base::Json& value) { return base::printable(value.dump(), 60); }

bool is_some_text(const base::Json& value) {
  return value.is_string() && !value.get_ref<const std::string&>().empty();
}

}  // namespace

Row::Row(base::Json json, std::string where) : json_(std::move(json)), where_(std::move(where)) {
  base::require(json_.is_object(), "{}: must be an object {{..}}, got {}", where_, shown(json_));
}

const base::Json& Row::field(const char* name) const {
  base::require(has(name), "{}: must have a field {}, got none", where_, name);
  return json_[name];
}

std::string Row::text(const char* name) const {
  const auto& value = field(name);
  base::require(value.is_string(), "{}: {} must be text, got {}", where_, name, shown(value));
  return value.get<std::string>();
}

std::string Row::some_text(const char* name) const {
  auto value = text(name);
  base::require(!value.empty(), "{}: {} must not be empty, got \"\"", where_, name);
  return value;
}

std::vector<std::string> Row::texts(const char* name, size_t least) const {
  const auto& value = field(name);
  const bool fits =
      value.is_array() && value.size() >= least && std::ranges::all_of(value, is_some_text);
  base::require(fits, "{}: {} must be {} or more, got {}", where_, name,
                least == 2 ? "two texts" : "one text", shown(value));
  return value.get<std::vector<std::string>>();
}

int64_t Row::number(const char* name, int64_t least, size_t count) const {
  const auto& value = field(name);
  const auto text = value.is_string() ? value.get<std::string>() : value.dump();
  return base::parse_number(text, where_ + ": " + name, least,
                            least + static_cast<int64_t>(count) - 1);
}

std::optional<Row> Rows::next() {
  if (!reader_.next(line_)) return std::nullopt;
  return Row(base::parse_json(line_, reader_.where()), reader_.where());
}

void for_each_row(const std::filesystem::path& file, size_t limit,
                  const std::function<void(const Row& row)>& take) {
  Rows rows(file);
  for (size_t i = 0; i < limit; ++i) {
    const auto row = rows.next();
    if (!row) return;
    take(*row);
  }
}

}  // namespace bmojo::eval
