#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "bmojo/cli/sweep_check.h"

namespace bmojo::cli {

struct SweepOptions {
  std::filesystem::path results;  // a line a finished run is added to it
  int64_t jobs = 1;               // at once
  bool keep = false;              // checkpoints of finished runs
  bool quiet = false;
};

// Trains and evaluates the runs of a sweep, and returns why some failed, a line each. On a signal
// the trainings save what they have, and Interrupted is thrown.
std::vector<std::string> run_all(const Sweep& sweep, const std::vector<const SweepRun*>& runs,
                                 const SweepFolder& shop, const RunSeconds& seconds,
                                 const SweepOptions& options);

}  // namespace bmojo::cli
