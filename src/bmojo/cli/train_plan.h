#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bmojo/train/estimate.h"

namespace bmojo::cli {

// What a run is, a line each of at most 80 columns; the times are those of steps from `step` on.
std::vector<std::string> summary(const train::Job& job, const train::Estimate& estimate,
                                 int64_t step);

// The answer of --dry-run.
void print_plan(const train::Job& job, const train::Estimate& estimate, int64_t step, bool json);

}  // namespace bmojo::cli
