#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bmojo/base/json.h"
#include "bmojo/nn/adamw.h"
#include "bmojo/nn/model.h"
#include "bmojo/train/workers.h"

// The folder of a run (docs/training.md):
//   run.toml  metrics.jsonl  step-00000500/ …  latest -> step-00000500  best -> step-00000400
// A step's folder is a checkpoint with what training needs to go on. It is built under another name
// and renamed when every byte is on the disk, its manifest written last: a name step-N that holds a
// manifest is whole.

namespace bmojo::train {

inline constexpr const char* kRunFile = "run.toml";
inline constexpr const char* kMetricsFile = "metrics.jsonl";
inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kProgressFile = "train.json";

// What one worker holds. Parameters and moments are the same on all of them.
struct Snapshot {
  nn::Model& model;
  nn::AdamW& optimizer;
  std::vector<std::string> names;   // of the optimiser's parameters, group after group
  std::vector<nn::State>& states;   // carried memories, a micro-batch each; empty: none
  Json progress;                    // step, tokens, …: what train.json holds
  std::filesystem::path tokenizer;  // copied along; empty: none
};

// Writes run/step-N and points `latest` to it. Every worker calls it.
void save(const std::filesystem::path& run, int64_t step, const Snapshot& snapshot,
          const Workers& workers);
// Points `best` to a step that was saved.
void mark_best(const std::filesystem::path& run, int64_t step);
// Removes all but the newest `keep` (0: none is removed); `latest` and `best` always stay.
void prune(const std::filesystem::path& run, int64_t keep);

// The newest whole checkpoint of a run, its files checked against the manifest; nothing where there
// is none. What a killed run left unfinished is removed by the first worker.
std::optional<std::filesystem::path> find_checkpoint(const std::filesystem::path& run);
void remove_unfinished(const std::filesystem::path& run);

Json load_progress(const std::filesystem::path& checkpoint);
// Weights, moments and carried memories into place.
void load(const std::filesystem::path& checkpoint, const Snapshot& snapshot,
          const Workers& workers);

// Keeps the lines of metrics.jsonl up to a step.
void cut_metrics(const std::filesystem::path& run, int64_t step);

}  // namespace bmojo::train
