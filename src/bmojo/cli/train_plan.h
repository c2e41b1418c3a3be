#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bmojo/data/task.h"
#include "bmojo/train/recipe.h"
#include "bmojo/train/source.h"

namespace bmojo {

// A run about to begin: a recipe that is complete, and what it names.
struct Job {
  train::Recipe recipe;
  Config config;
  train::Plan plan;
  std::optional<Task> task;
  std::shared_ptr<const TokenData> data;
};

// What a worker will take.
struct Estimate {
  double step_seconds = 0;                     // with its part of the validations
  double program_bytes = 0, memory_bytes = 0;  // before the model is built; beside that
  int64_t tried_tokens = 0, tried_layers = 0;  // of the steps it is known by
};

// Tries two steps, of fewer or shorter sequences and of fewer layers where those of the run would
// take long.
Estimate estimate(const Job& job, const train::Source& source);

// What a run is, a line each of at most 80 columns; the times are those of steps from `step` on.
std::vector<std::string> summary(const Job& job, const Estimate& estimate, int64_t step);

// The answer of --dry-run.
void print_plan(const Job& job, const Estimate& estimate, int64_t step, bool json);

}  // namespace bmojo
