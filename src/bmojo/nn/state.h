#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "bmojo/nn/layout.h"

namespace bmojo::nn {

// An eidetic set: m members of each row, in time order; places that hold nothing come last, with
// position kNowhere. Token ids only show people what is remembered (-1: not given).
struct EideticSet {
  at::Tensor innovation;  // [B, m]
  at::Tensor position;    // [B, m] int64
  at::Tensor token;       // [B, m] int64
};
inline constexpr int64_t kNowhere = INT64_MAX;

// What one layer carries from call to call (docs/model.md, Streaming). A key and its value are one
// row: kv = [2, G, d].
struct LayerState {
  at::Tensor conv_tail;  // [B, K-1, E] last inputs of the convolution
  at::Tensor ssm;        // [B, E, N] h
  at::Tensor outputs;    // [B, k, D] last outputs y, for the predictor
  at::Tensor window;     // [B, rows, 2, G, d] the last w tokens
  at::Tensor fading;     // [B, rows, 2, G, d]
  at::Tensor eidetic;    // [B, m, 2, G, d] of the frozen set
  EideticSet frozen;     // M at the start of the chunk: what queries see
  EideticSet running;    // M now; a member that is not frozen is still in the window
};

struct State {
  Cursor cursor;
  std::vector<LayerState> layers;
};

// The same state without its past: gradients stop here (truncated back-propagation).
State detach(const State& state);

}  // namespace bmojo::nn
