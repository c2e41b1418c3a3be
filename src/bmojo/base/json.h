#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace bmojo::base {

using Json = nlohmann::ordered_json;

// Strict JSON: duplicate names, nesting deeper than 64, bad UTF-8 and trailing text are refused.
// Errors start with `subject`.
Json parse_json(std::string_view text, std::string_view subject);

// The events of a parse without a document, for what is too large for one. Nesting, duplicates and
// counts are the handler's to bound; syntax errors throw Error and start with `subject`.
class JsonEvents : public nlohmann::json_sax<Json> {
 public:
  explicit JsonEvents(std::string subject) : subject_(std::move(subject)) {}
  const std::string& subject() const { return subject_; }

  bool binary(binary_t&) final { return false; }  // not in JSON text
  bool parse_error(size_t byte, const std::string& token,
                   const nlohmann::detail::exception& error) final;

 private:
  std::string subject_;
};

void parse_json(std::string_view text, JsonEvents& events);

}  // namespace bmojo::base
