#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bmojo/model/config.h"

// What `bmojo inspect` has in several files.

namespace bmojo::cli {

// At most 80 columns; cut after escaping, which makes text longer.
void print_row(std::string_view name, std::string_view value);
// "B'MOJO, width 128, vocabulary 32000"
std::string model_text(const model::Config& config);
// Bytes that an unlimited window adds with every token read; 0 where it has an end.
int64_t growth_of(const model::Config& config);

// A state file; `model` the folder it belongs to, whose tokenizer shows the text of its tokens, or
// nothing.
void inspect_state(const std::string& path, const std::string& model, bool json);

}  // namespace bmojo::cli
