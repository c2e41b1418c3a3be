#pragma once

#include "bmojo/train/source.h"

namespace bmojo::train {

// What is computed at once: `sequences` sequences of segment x bptt tokens.
struct TrialShape {
  int64_t sequences = 0, segment = 0, bptt = 0;
  int64_t length() const { return segment * bptt; }
  int64_t tokens() const { return sequences * length(); }
};

struct Trial {
  double seconds = 0, update_seconds = 0;  // forward and backward; the optimiser's step
  double scoring_seconds = 0;              // of the same tokens, as validation does it
  int64_t num_scored = 0;                  // tokens that entered the loss
};

// How a step of the run is made of micro-batches.
struct TrialStep {
  int64_t num_micro = 1;  // gradients add up over them
  bool carries = false;   // each keeps its memories for the next step
  bool recompute = false;
};

// The most micro-batches of a step that are tried.
inline constexpr int64_t kMostTried = 4;

// Two steps with fresh weights on the run's first tokens; the last micro-batch is timed. Writes
// nothing; the heap keeps what they took.
Trial try_steps(const model::Config& config, const Source& source, const TrialShape& shape,
                const TrialStep& step);

}  // namespace bmojo::train
