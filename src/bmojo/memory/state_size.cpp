#include "bmojo/memory/state_size.h"

#include "bmojo/memory/visibility.h"

namespace bmojo::memory {

MemoryBytes memory_bytes(const model::Config& c, int64_t context) {
  constexpr int64_t kFloat = 4, kInteger = 8;
  const int64_t row = 2 * c.num_kv_heads * c.head_size * kFloat;  // a key and a value
  const memory::FadingMemory fading{c.window, c.fading_tokens, c.fading_sliding()};
  MemoryBytes bytes;
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const auto kind = c.kind(i);
    if (kind != model::LayerKind::attention) {
      bytes.ssm_state += c.ssm_inner_size * c.ssm_state_size * kFloat;
      bytes.conv_tail += c.ssm_inner_size * (c.ssm_conv_taps - 1) * kFloat;
    }
    if (kind != model::LayerKind::ssm) bytes.window += (c.window > 0 ? c.window : context) * row;
    if (kind != model::LayerKind::bmojo) continue;
    bytes.fading += fading.num_rows() * row;
    if (c.eidetic_tokens == 0) continue;
    bytes.predictor += c.predictor_taps * c.hidden_size * kFloat;
    // Keys and values once; innovation, position and token id for the frozen and the running set.
    bytes.eidetic += c.eidetic_tokens * (row + 2 * (kFloat + 2 * kInteger));
  }
  return bytes;
}

}  // namespace bmojo::memory
