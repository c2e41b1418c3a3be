#pragma once

#include <cstdint>

#include "bmojo/train/job.h"

namespace bmojo::train {

// What a worker will take.
struct Estimate {
  double step_seconds = 0;                     // with its part of the validations
  double program_bytes = 0, memory_bytes = 0;  // before the model is built; beside that
  int64_t tried_tokens = 0, tried_layers = 0;  // of the steps it is known by
};

// Tries two steps, of fewer or shorter sequences and of fewer layers where those of the run would
// take long.
Estimate estimate(const Job& job, const Source& source);

}  // namespace bmojo::train
