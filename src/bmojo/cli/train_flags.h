#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>

#include "bmojo/train/recipe.h"

namespace bmojo {

// A flag for each field of a recipe. Their words are kept as they were given.
void add_recipe_flags(CLI::App& verb);

// A run file's recipe. Paths are absolute, the task is spelt out.
train::Recipe load_recipe(const std::filesystem::path& run_file);

// Defaults, then a resumed run's own file, then --run, then what was given on the command line. An
// empty path: no such file.
train::Recipe merged_recipe(const CLI::App& verb, const std::filesystem::path& run_file,
                            const std::filesystem::path& resumed_file);

}  // namespace bmojo
