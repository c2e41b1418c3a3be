#include "bmojo/memory/state_size.h"

#include <algorithm>

#include "bmojo/memory/pieces.h"
#include "bmojo/memory/visibility.h"

namespace bmojo::memory {

LayerSizes sizes_of(const model::Config& c, int64_t layer, int64_t position) {
  const auto kind = c.kind(layer);
  LayerSizes sizes = {};
  if (kind != model::LayerKind::attention) {
    sizes.conv_tail = (c.ssm_conv_taps - 1) * c.ssm_inner_size;
    sizes.ssm = c.ssm_inner_size * c.ssm_state_size;
  }
  if (kind == model::LayerKind::ssm) return sizes;
  const int64_t row = 2 * c.num_kv_heads * c.head_size;  // a key and a value
  sizes.window = (c.window > 0 ? c.window : position) * row;
  if (kind != model::LayerKind::bmojo) return sizes;
  sizes.fading = FadingMemory{c.window, c.fading_tokens, c.fading_sliding()}.num_rows() * row;
  if (c.eidetic_tokens == 0) return sizes;
  sizes.outputs = c.predictor_taps * c.hidden_size;
  const int64_t frozen =
      std::min(c.eidetic_tokens, EideticMemory{c.window}.frozen_before(position));
  const int64_t running = std::min(c.eidetic_tokens, position);
  sizes.eidetic = frozen * row;
  sizes.frozen = {frozen, frozen, frozen};
  sizes.running = {running, running, running};
  return sizes;
}

MemoryBytes memory_bytes(const model::Config& c, int64_t context) {
  constexpr int64_t kFloat = 4, kInteger = 8;
  const auto bytes_of = [](const LayerSizes::Set& set) {
    return set.innovation * kFloat + (set.position + set.token) * kInteger;
  };
  MemoryBytes bytes;
  for (int64_t i = 0; i < c.num_layers; ++i) {
    // A window that ends is full after any text that is long enough, and so are the sets.
    const auto sizes = sizes_of(c, i, c.window > 0 ? kUnlimited : context);
    bytes.window += sizes.window * kFloat;
    bytes.fading += sizes.fading * kFloat;
    bytes.ssm_state += sizes.ssm * kFloat;
    bytes.conv_tail += sizes.conv_tail * kFloat;
    bytes.predictor += sizes.outputs * kFloat;
    bytes.eidetic += sizes.eidetic * kFloat + bytes_of(sizes.frozen) + bytes_of(sizes.running);
  }
  return bytes;
}

}  // namespace bmojo::memory
