#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "bmojo/cli/engine.h"
#include "bmojo/nn/model.h"

namespace bmojo::cli {

// The verbs that run through torch, one file each.
void add_bench_verb(CLI::App& app);
void add_train_verb(CLI::App& app);

// Loads a checkpoint folder or the latest of a run, with `--set` of the fields no weight depends
// on.
nn::Model load_model(const std::string& folder, const std::vector<std::string>& settings);

// `--threads N`; 0 leaves torch's own choice, one thread a core.
void use_threads(int64_t threads);

}  // namespace bmojo::cli
