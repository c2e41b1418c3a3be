#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bmojo/base/json.h"
#include "bmojo/base/run_file.h"

namespace bmojo::cli {

// One training of a sweep.
struct SweepRun {
  std::string family, name;                               // the name is that of its folder
  std::vector<std::pair<std::string, std::string>> axes;  // key and value, in the file's order
  std::vector<base::RunFileItem> recipe;                  // fields of a run file, a line each

  // The value of a field that has one; nothing where the recipe leaves it open.
  std::string value_of(std::string_view key) const;
};

// What a trained model is asked. Without data and task: the task it was trained on.
struct SweepEval {
  std::string task;
  std::vector<std::string> data, set;
};

struct Sweep {
  std::vector<SweepRun> runs;
  std::vector<SweepEval> evals;
  int64_t sequences = 1000;
};

// Reads [base], [family.NAME], [grid], [eval] and [stop] (docs/sweeps.md). Error with file and line
// for what is missing, unknown, empty or there twice.
Sweep load_sweep(const std::filesystem::path& path);

// A run's recipe as a run file, and as {field: value or list}.
std::string to_toml(const SweepRun& run);
base::Json to_json(const SweepRun& run);
// The evaluations of a run, with its own task where none is named.
std::vector<SweepEval> evals_of(const Sweep& sweep, const SweepRun& run);
base::Json to_json(const Sweep& sweep, const std::vector<SweepEval>& evals);

// 8, 0.001 and true as JSON, any other word as text.
base::Json json_of_word(const std::string& word);

}  // namespace bmojo::cli
