#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "bmojo/base/json.h"
#include "bmojo/data/tokenizer.h"
#include "bmojo/eval/generate.h"

// What verbs share that let a model write.

namespace bmojo::cli {

struct Writing {
  std::string tokenizer, state_in, state_out;
  std::optional<int64_t> seed;  // where --seed is given
  eval::GenerateOptions how;
};
// --tokenizer, --state-in, --state-out, --max-tokens, --stop and how tokens are drawn.
void add_writing_flags(CLI::App& verb, Writing& writing);

// The one that is asked for, or the model's own; null where it has none. Error where it has ids
// that the model does not have.
std::unique_ptr<data::Tokenizer> tokenizer_for(const Writing& writing, const std::string& model,
                                               const model::Config& config);

// A text that begins, or a saved one; that goes on with its own draws unless others are asked for.
eval::Continuation begin_or_load(const eval::LanguageModel& model, const std::string& path,
                                 std::optional<int64_t> seed);

// Shows text on a terminal as it comes, and nothing that would move its cursor.
void stream_text(std::string_view text);

// One line of --json.
base::Json generated_json(const eval::Generated& sample, bool with_text, int64_t num_prompt,
                          int64_t num_reprocessed);

}  // namespace bmojo::cli
