#pragma once

#include <string>
#include <string_view>

#include "bmojo/eval/score.h"

namespace bmojo::eval {

// A line of a file of ids: {"ids": [..]}. Error with `subject` where it is another. Whether the ids
// are of a vocabulary is not asked.
Ids parse_ids_line(std::string_view line, const std::string& subject);

}  // namespace bmojo::eval
