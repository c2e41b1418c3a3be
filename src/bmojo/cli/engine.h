#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bmojo/cli/command_line.h"
#include "bmojo/data/batch.h"
#include "bmojo/eval/language_model.h"

// Verbs that run a model are written once, over eval::LanguageModel, and linked into both programs:
// `bmojo` opens it with the native engine, `bmojo-torch` with torch.

namespace bmojo::cli {

void add_score_verb(CLI::App& app);
void add_eval_verb(CLI::App& app);
void add_explain_verb(CLI::App& app);
void add_generate_verb(CLI::App& app);

// Which model, and how it runs.
struct EngineChoice {
  std::string model, engine = "native", dtype;
  std::vector<std::string> set;
  int64_t sequences = 1;  // read at once
};
void add_engine_flags(CLI::App& verb, EngineChoice& choice);

// A checkpoint folder or the latest of a run, with `--set` of the fields no weight depends on.
// threads 0: all cores. Each program has its own. RunError where the weights and the memories of
// the sequences would not fit, before anything is loaded.
std::unique_ptr<eval::LanguageModel> open_model(const EngineChoice& choice, int64_t threads);

// `explain --realization`, which bmojo-torch alone can tell, and the table of what it told.
base::Json explain_realization(const EngineChoice& choice, const data::Batch& sequence);
void print_realization(const base::Json& told);

// Runs a verb's body under BMOJO_SIMD; an engine's own exceptions become one line.
void run_verb(const std::function<void()>& verb);
void cap_instruction_set();

// "1,2,3" of `--ids`: every part a whole number.
std::vector<int64_t> parse_ids(std::string_view text);

// Error naming `subject` where an id is not of the vocabulary, or there is none.
void check_ids(const std::vector<int64_t>& ids, const model::Config& config,
               const std::string& subject);

// Error where a task of `--task` has other ids than the model.
void require_vocabulary(const data::Task& task, const model::Config& config);

}  // namespace bmojo::cli
