#pragma once

#include "bmojo/train/source.h"

namespace bmojo::train {

// What is computed at once: `rows` sequences of segment x bptt tokens.
struct TrialShape {
  int64_t rows = 0, segment = 0, bptt = 0;
  int64_t length() const { return segment * bptt; }
  int64_t tokens() const { return rows * length(); }
};

struct Trial {
  double seconds = 0, update_seconds = 0;  // forward and backward; the optimiser's step
  int64_t num_scored = 0;                  // tokens that entered the loss
};

// Two steps with fresh weights on the run's first tokens, the second of them timed. Where the run
// `accumulates`, the second adds its gradients to those of the first, and both are there at once.
// Writes nothing; the heap keeps what they took.
Trial try_steps(const Config& config, const Source& source, const TrialShape& shape, bool recompute,
                bool accumulates);

}  // namespace bmojo::train
