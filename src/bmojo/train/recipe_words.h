#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "bmojo/train/recipe.h"

// A recipe as it is said: on a command line and in run files.

namespace bmojo::train {

// `--field=value`, wherever it was said.
struct Flag {
  std::string field, value;
};
using Flags = std::vector<Flag>;

// "batch_tokens" <-> "--batch-tokens", and whether a recipe has such a field.
std::string flag_of(std::string_view field);
std::string field_of(std::string_view flag);
enum class FieldKind { none, one, list };
FieldKind kind_of(std::string_view field);

// A run file's recipe. Paths are absolute, the task is spelt out.
Recipe load_recipe(const std::filesystem::path& run_file);

// Defaults, then a resumed run's own file, then `run_file`, then what was given. An empty path: no
// such file.
Recipe merged_recipe(Flags given, const std::filesystem::path& run_file,
                     const std::filesystem::path& resumed_file);

}  // namespace bmojo::train
