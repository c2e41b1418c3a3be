#pragma once

#include "bmojo/nn/model.h"
#include "bmojo/train/source.h"

namespace bmojo::train {

// Tokens of a call, calls that one gradient goes back through, and whether what the backward pass
// needs is kept or computed again.
struct Segments {
  int64_t length = 0, count = 0;
  bool recompute = false;
};

// The loss of a batch, times `scale`. Its gradients are added to those of the weights, and the
// memories go on from where they were, without a way back for later gradients.
double backward(const nn::Model& model, const Batch& batch, const Segments& segments, double scale,
                nn::State& state);

}  // namespace bmojo::train
