#include "bmojo/model/flops.h"

#include "bmojo/model/tensors.h"

namespace bmojo::model {
namespace {

// Keys a query sees on average.
double visible_keys(const Config& c, LayerKind kind, int64_t length) {
  const auto n = static_cast<double>(length), w = static_cast<double>(c.window);
  if (c.window == 0 || length <= c.window) return (n + 1) / 2;
  const double window = (w * (w + 1) / 2 + (n - w) * w) / n;
  if (kind != LayerKind::bmojo) return window;
  return window + (n - w) / n * static_cast<double>(c.fading_tokens + c.eidetic_tokens);
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

}  // namespace bmojo::model
