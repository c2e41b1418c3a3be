#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bmojo/data/tokenizer.h"
#include "bmojo/infer/snapshot.h"
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

// The same of one in memory; `tokenizer` may be null.
struct StateName {
  std::string text;
  std::optional<int64_t> file_bytes = {};  // of one that lies in a file
};
void show_state(const infer::Snapshot& snapshot, const StateName& name,
                const data::Tokenizer* tokenizer, bool json);

}  // namespace bmojo::cli
