#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bmojo/cli/command_line.h"
#include "bmojo/data/task.h"
#include "bmojo/nn/model.h"

namespace bmojo {

// The verbs that run through torch, one file each.
void add_score_verb(CLI::App& app);
void add_generate_verb(CLI::App& app);
void add_bench_verb(CLI::App& app);
void add_train_verb(CLI::App& app);
void add_eval_verb(CLI::App& app);
void add_explain_verb(CLI::App& app);

// Loads a checkpoint folder or the latest of a run, with `--set` of the fields no weight depends
// on.
nn::Model load_model(const std::string& folder, const std::vector<std::string>& settings);

// `--threads N`; 0 leaves torch's own choice, one thread a core.
void use_threads(int64_t threads);

// Runs a verb's body; torch's exceptions become one line, an allocation that failed std::bad_alloc.
void run_verb(const std::function<void()>& verb);

// "1,2,3" of `--ids`: every part a whole number.
std::vector<int64_t> parse_ids(std::string_view text);

// Error where a task of `--task` has other ids than the model.
void require_vocabulary(const Task& task, const Config& config);

// Error naming `subject` where an id is not of the vocabulary, or there is none.
void check_ids(const std::vector<int64_t>& ids, const Config& config, const std::string& subject);

}  // namespace bmojo
