#include "bmojo/model/tensors.h"

#include <fmt/format.h>

#include <algorithm>

namespace bmojo::model {
namespace {

void add_ssm(std::vector<TensorSpec>& out, const std::string& at, const Config& c,
             bool writes_residual) {
  const auto D = c.hidden_size, E = c.ssm_inner_size, N = c.ssm_state_size, K = c.ssm_conv_taps,
             R = c.ssm_dt_rank;
  out.push_back({at + "in_proj.weight", {2 * E, D}, Init::linear});
  if (c.ssm_bias) out.push_back({at + "in_proj.bias", {2 * E}, Init::zeros});
  out.push_back({at + "conv1d.weight", {E, 1, K}, Init::linear});
  if (c.ssm_conv_bias) out.push_back({at + "conv1d.bias", {E}, Init::zeros});
  out.push_back({at + "x_proj.weight", {R + 2 * N, E}, Init::linear});
  out.push_back({at + "dt_proj.weight", {E, R}, Init::dt_proj});
  out.push_back({at + "dt_proj.bias", {E}, Init::dt_bias});
  out.push_back({at + "A_log", {E, N}, Init::a_log});
  out.push_back({at + "D", {E}, Init::ones});
  out.push_back({at + "out_proj.weight", {D, E}, writes_residual ? Init::residual : Init::linear});
  if (c.ssm_bias) out.push_back({at + "out_proj.bias", {D}, Init::zeros});
}

void add_attention(std::vector<TensorSpec>& out, const std::string& at, const Config& c,
                   bool with_memory) {
  const auto D = c.hidden_size, queries = c.num_heads * c.head_size,
             keys = c.num_kv_heads * c.head_size;
  out.push_back({at + "q_proj.weight", {queries, D}, Init::linear});
  out.push_back({at + "k_proj.weight", {keys, D}, Init::linear});
  out.push_back({at + "v_proj.weight", {keys, D}, Init::linear});
  out.push_back({at + "o_proj.weight", {D, queries}, Init::residual});
  if (!with_memory) return;
  out.push_back({at + "fading_norm.weight", {D}, Init::ones});
  if (!c.fading_tied) {
    out.push_back({at + "fading_k_proj.weight", {keys, D}, Init::linear});
    out.push_back({at + "fading_v_proj.weight", {keys, D}, Init::linear});
  }
  if (c.innovation_bias) out.push_back({at + "innovation_bias", {1}, Init::beta});
}

void add_mlp(std::vector<TensorSpec>& out, const std::string& at, const Config& c) {
  const auto D = c.hidden_size, F = c.mlp_size;
  out.push_back({at + "norm.weight", {D}, Init::ones});
  out.push_back({at + "gate_proj.weight", {F, D}, Init::linear});
  out.push_back({at + "up_proj.weight", {F, D}, Init::linear});
  out.push_back({at + "down_proj.weight", {D, F}, Init::residual});
}

}  // namespace

std::vector<TensorSpec> tensor_specs(const Config& c) {
  std::vector<TensorSpec> out;
  out.push_back({"embedding.weight", {c.vocab_size, c.hidden_size}, Init::embedding});
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const auto at = fmt::format("layers.{}.", i);
    const auto kind = c.kind(i);
    out.push_back({at + "norm.weight", {c.hidden_size}, Init::ones});
    if (kind != LayerKind::attention)
      add_ssm(out, at + "ssm.", c, kind == LayerKind::ssm || c.fading_residual);
    if (kind != LayerKind::ssm) add_attention(out, at + "attention.", c, kind == LayerKind::bmojo);
    if (c.mlp_size > 0) add_mlp(out, at + "mlp.", c);
  }
  out.push_back({"norm.weight", {c.hidden_size}, Init::ones});
  if (!c.tied_embeddings)
    out.push_back({"head.weight", {c.vocab_size, c.hidden_size}, Init::linear});
  return out;
}

int64_t count_parameters(const Config& config) {
  int64_t total = 0;
  for (const auto& spec : tensor_specs(config)) total += num_elements(spec.shape);
  return total;
}

int64_t count_parameters_without_embeddings(const Config& config) {
  const int64_t tables = config.tied_embeddings ? 1 : 2;
  return count_parameters(config) - tables * config.vocab_size * config.hidden_size;
}

}  // namespace bmojo::model
