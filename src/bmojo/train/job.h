#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bmojo/data/task.h"
#include "bmojo/train/recipe.h"
#include "bmojo/train/run_folder.h"
#include "bmojo/train/source.h"
#include "bmojo/train/trainer.h"

// What starts, resumes and checks a run.

namespace bmojo::train {

// A run about to begin: a recipe that is complete, and what it names.
struct Job {
  Recipe recipe;
  model::Config config;
  Plan plan;
  std::optional<data::Task> task;
  std::shared_ptr<const data::TokenData> data;
};

// What a run that goes on was started with.
struct Started {
  Recipe recipe;
  Record record;
};
Started load_started(const std::filesystem::path& out);

// Reads what the recipe names and fills in what it leaves open; `threads` is what it may have.
// Error where a run that was started is not this one.
Job prepare(Recipe recipe, const std::optional<Started>& started, const std::string& out,
            int64_t threads);

// Told in lines for people.
using Say = std::function<void(const std::string&)>;

// Refuses what would end the run before its first step. Returns the step it would go on from.
// Writes nothing.
int64_t check_start(const Job& job, const Source& source, const std::optional<Started>& started,
                    const std::string& out, const Say& say);

// How a worker of a run is looked after.
struct WorkerCalls {
  std::function<void(const Source&)> before;  // everything was read, nothing is written
  // Before the first step; `resumed` is the step of the checkpoint it goes on from.
  std::function<void(const Trainer&, std::optional<int64_t> resumed)> starts;
  std::function<bool()> stop_asked;  // a signal came
  Say say;
  bool quiet = false;
};

// Makes or finds the run's folder and holds its lock while `run` trains. Nothing is written before
// everything the recipe names has been read.
void with_trainer(const Job& job, const std::string& out, const std::optional<Started>& started,
                  const Workers& workers, const WorkerCalls& calls,
                  const std::function<void(Trainer&)>& run);

}  // namespace bmojo::train
