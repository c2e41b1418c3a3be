#include "bmojo/model/flops.h"

#include <algorithm>

#include "bmojo/model/tensors.h"

namespace bmojo {
namespace {

// Keys a query sees on average.
double visible_keys(const Config& c, LayerKind kind, int64_t length) {
  const auto n = static_cast<double>(length), w = static_cast<double>(c.window);
  if (c.window == 0 || length <= c.window) return (n + 1) / 2;
  const double window = (w * (w + 1) / 2 + (n - w) * w) / n;
  if (kind != LayerKind::bmojo) return window;
  return window + (n - w) / n * static_cast<double>(c.fading_tokens + c.eidetic_tokens);
}

// Floats a layer keeps of a token.
double layer_floats(const Config& c, LayerKind kind) {
  const auto d = static_cast<double>(c.hidden_size), e = static_cast<double>(c.ssm_inner_size);
  double floats = 2 * d;             // its input, normalised
  if (kind != LayerKind::attention)  // both halves of the projection, conv, dt, B, C, blocks, gate
    floats += 6 * e + static_cast<double>(c.ssm_dt_rank) +
              static_cast<double>(c.ssm_state_size) * (2 + e / 32) + 2 * d;
  if (kind != LayerKind::ssm)
    floats += static_cast<double>(c.head_size) *
              static_cast<double>(3 * c.num_heads + 4 * c.num_kv_heads);
  if (c.mlp_size > 0) floats += 3 * d + 2 * static_cast<double>(c.mlp_size);
  return floats;
}

}  // namespace

double training_flops_per_token(const Config& config, int64_t length) {
  double products = 0, attention = 0;
  for (const auto& spec : tensor_specs(config)) {
    const bool head = spec.name == (config.tied_embeddings ? "embedding.weight" : "head.weight");
    if (spec.name.ends_with("proj.weight") || head)
      products += static_cast<double>(num_elements(spec.shape));
  }
  for (int64_t i = 0; i < config.num_layers; ++i)
    if (config.kind(i) != LayerKind::ssm) attention += visible_keys(config, config.kind(i), length);
  const auto width = static_cast<double>(config.num_heads * config.head_size);
  return 6 * products + 12 * width * attention;
}

double activation_bytes_per_token(const Config& config, bool recompute) {
  double sum = 0, most = 0;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const double floats = layer_floats(config, config.kind(i));
    sum += recompute ? static_cast<double>(config.hidden_size) : floats;
    most = std::max(most, floats);
  }
  return 4 * (sum + (recompute ? most : 0) + 2 * static_cast<double>(config.hidden_size));
}

}  // namespace bmojo
