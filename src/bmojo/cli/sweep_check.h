#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "bmojo/cli/sweep_folder.h"

namespace bmojo::cli {

// What is known of runs before they start: the seconds each will take, 0 where train does not say.
using RunSeconds = std::map<const SweepRun*, double>;

// Lets `train --dry-run` look at each run, `jobs` at once; those that differ in their seed alone
// are looked at once. Error, by the line of the sweep's own file where there is one, for a run that
// could not be started.
RunSeconds check_runs(const SweepFolder& shop, const std::vector<const SweepRun*>& runs,
                      int64_t jobs);

}  // namespace bmojo::cli
