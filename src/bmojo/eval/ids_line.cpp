#include "bmojo/eval/ids_line.h"

#include "bmojo/base/error.h"
#include "bmojo/base/json.h"
#include "bmojo/base/printable.h"

namespace bmojo::eval {

Ids parse_ids_line(std::string_view line, const std::string& subject) {
  const auto json = base::parse_json(line, subject);
  base::require(json.is_object() && json.contains("ids") && json["ids"].is_array(),
                "{}: must be {{\"ids\": [..]}}, got {}", subject, base::printable(json.dump(), 60));
  Ids ids;
  for (const auto& id : json["ids"]) {
    base::require(
        id.is_number_integer() && (!id.is_number_unsigned() || id.get<uint64_t>() <= INT64_MAX),
        "{}: ids must be whole numbers, got {}", subject, base::printable(id.dump(), 60));
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

}  // namespace bmojo::eval
