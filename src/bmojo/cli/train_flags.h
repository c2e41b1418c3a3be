#pragma once

#include <CLI/CLI.hpp>

#include "bmojo/train/recipe_words.h"

namespace bmojo::cli {

// A flag for each field of a recipe. Their words are kept as they were given.
void add_recipe_flags(CLI::App& verb);
train::Flags recipe_flags(const CLI::App& verb);

}  // namespace bmojo::cli
