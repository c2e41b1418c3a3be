#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bmojo/base/input.h"
#include "bmojo/base/json.h"

namespace bmojo::eval {

// One object of a line, and what its fields must be. Errors name file, line and field.
class Row {
 public:
  Row(base::Json json, std::string where);

  const std::string& where() const { return where_; }
  bool has(const char* name) const { return json_.contains(name); }

  const base::Json& field(const char* name) const;
  Row object(const char* name) const { return {field(name), where_ + " " + name}; }
  std::string text(const char* name) const;
  std::string some_text(const char* name) const;
  // `least` or more, 1 or 2, none of them empty.
  std::vector<std::string> texts(const char* name, size_t least = 2) const;
  // A whole number from `least`, also as text.
  int64_t number(const char* name, int64_t least, size_t count) const;

 private:
  base::Json json_;
  std::string where_;
};

// The rows of a file, a line each.
class Rows {
 public:
  explicit Rows(const std::filesystem::path& file) : reader_(file.string()) {}
  std::optional<Row> next();

 private:
  base::LineReader reader_;
  std::string line_;
};

void for_each_row(const std::filesystem::path& file, size_t limit,
                  const std::function<void(const Row& row)>& take);

}  // namespace bmojo::eval
