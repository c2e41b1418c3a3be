#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bmojo/base/json.h"
#include "bmojo/data/own_tokenizer.h"
#include "bmojo/model/checkpoint.h"
#include "bmojo/model/tokenizer_files.h"
#include "bmojo/nn/adamw.h"
#include "bmojo/nn/model.h"
#include "bmojo/train/recipe.h"
#include "bmojo/train/source.h"
#include "bmojo/train/workers.h"

// The folder of a run (docs/training.md):
//   lock  run.toml  run.json  metrics.jsonl  step-00000500/ …  latest -> step-00000500
//   best -> step-00000400
// Whoever writes holds the lock.
// A step's folder is a checkpoint with what training needs to go on. It is built under another name
// and renamed when every byte is on the disk, its manifest written last: a name step-N that holds a
// manifest is whole. The manifest names regular files of its own folder, at least one.

namespace bmojo::train {

inline constexpr const char* kLockFile = "lock";
inline constexpr const char* kRecordFile = "run.json";
inline constexpr const char* kMetricsFile = "metrics.jsonl";
inline constexpr const char* kManifestFile = "manifest.json";

// What the names in run.toml stood for when the run was started.
struct Record {
  model::Config config;
  base::Json source;  // Source::identity(), and the digest of given weights
};
// Error where the folder of a new run would hold something already.
void check_new(const std::filesystem::path& run);
// Error where a folder is not that of a run: without run.toml, or with neither run.json nor a step.
// RunError where its steps are gone.
void check_started(const std::filesystem::path& run);
// Begins a new run in a folder that is there: run.json, then run.toml, without which it is none.
void create(const std::filesystem::path& run, const Record& record, const std::string& toml);
// What run.json holds; for older runs without, what the newest whole checkpoint does.
Record load_record(const std::filesystem::path& run);

// What one worker holds. Parameters and moments are the same on all of them.
struct Snapshot {
  nn::Model& model;
  nn::AdamW& optimizer;
  std::vector<std::string> names;  // of the optimiser's parameters, group after group
  std::vector<nn::State>& states;  // carried memories, a micro-batch each; empty: none
  base::Json progress;             // step, tokens, …: what train.json holds
  const model::TokenizerFiles& tokenizer;
};

// Writes run/step-N. Every worker calls it.
void save(const std::filesystem::path& run, int64_t step, const Snapshot& snapshot,
          const Workers& workers);
// Points `latest` and `best` to steps that were saved; `best` goes where its step is not there.
void mark(const std::filesystem::path& run, int64_t latest, int64_t best);
// Removes all but the newest `keep` (0: none is removed); `latest` and `best` always stay.
void prune(const std::filesystem::path& run, int64_t keep);

// The newest step whose files are those of its manifest; nothing where no step was ever saved.
// RunError where steps are gone or none is whole. `say` is told which ones were skipped.
std::optional<int64_t> find_checkpoint(const std::filesystem::path& run,
                                       const std::function<void(const std::string&)>& say);
std::filesystem::path step_folder(const std::filesystem::path& run, int64_t step);
// The name of the newest step up to this one, or "none".
std::string newest_step_name(const std::filesystem::path& run, int64_t until);
// Removes what a killed run left behind, and nothing else.
void remove_unfinished(const std::filesystem::path& run);

// Error, with the difference, where a step was made with another recipe, other data or another
// model.
void require_same_run(const std::filesystem::path& run, int64_t step, const Recipe& recipe,
                      const Source& source, const model::Config& config);
// Weights, moments and carried memories into place.
void load(const std::filesystem::path& checkpoint, const Snapshot& snapshot,
          const Workers& workers);

// Keeps the lines of metrics.jsonl up to a step; what cannot be read is cut off.
void cut_metrics(const std::filesystem::path& run, int64_t step);

}  // namespace bmojo::train
