#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "bmojo/memory/eidetic_sets.h"
#include "bmojo/memory/layer_state.h"
#include "bmojo/nn/layout.h"

namespace bmojo::nn {

using memory::kNowhere;

// Every field has a first dimension B. The sets of the sequences are as long as the longest; places
// that hold nothing come last, with position kNowhere.
using LayerState = memory::LayerState<at::Tensor, at::Tensor>;
using EideticSet = LayerState::Set;

struct State {
  Cursor cursor;
  std::vector<LayerState> layers;
};

// The same state without its past: gradients stop here (truncated back-propagation).
State detach(const State& state);

}  // namespace bmojo::nn
