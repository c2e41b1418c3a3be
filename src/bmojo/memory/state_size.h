#pragma once

#include <cstdint>

#include "bmojo/memory/layer_state.h"
#include "bmojo/model/config.h"

namespace bmojo::memory {

// How many numbers each field of a layer's state holds after `position` tokens.
using LayerSizes = LayerState<int64_t, int64_t>;
LayerSizes sizes_of(const model::Config& config, int64_t layer, int64_t position);

// What one sequence must keep to continue, all layers, in bytes of fp32 (positions and ids: 8
// bytes). An unlimited window grows with the text and counts as what `context` tokens take.
struct MemoryBytes {
  int64_t window = 0, fading = 0, ssm_state = 0, conv_tail = 0, predictor = 0, eidetic = 0;
  int64_t total() const { return window + fading + ssm_state + conv_tail + predictor + eidetic; }
};
MemoryBytes memory_bytes(const model::Config& config, int64_t context = 0);

}  // namespace bmojo::memory
