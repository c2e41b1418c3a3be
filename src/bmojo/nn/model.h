#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bmojo/model/checkpoint.h"
#include "bmojo/model/config.h"
#include "bmojo/nn/layer.h"
#include "bmojo/nn/state.h"

namespace bmojo::nn {

using Parameters = std::vector<std::pair<std::string, at::Tensor>>;  // in file order

// Fresh weights, the very ones `bmojo init` writes for this seed.
Parameters fresh_parameters(const model::Config& config, uint64_t seed);
// The weights of a checkpoint in fp32; f32 files are mapped, not copied.
Parameters load_parameters(const model::Checkpoint& checkpoint);
// Tensors without values, for shapes alone.
Parameters empty_parameters(const model::Config& config, const at::TensorOptions& options);

// How a call's sequences are cut; empty fields as in Sequences.
struct CallOptions {
  std::vector<int64_t> lengths;
  std::vector<int64_t> documents;
  std::vector<at::Tensor> selections;  // a layer each, as Output has them
  // For eidetic_rule=oracle: positions to keep of each sequence, the most wanted first.
  std::vector<std::vector<int64_t>> wanted = {};
  SoftCut cut = {};             // training only (eidetic_bias.h)
  bool recompute = false;       // keep a layer's inputs only, for the backward pass
  bool keep_attention = false;  // for attention_weights()
  bool keep_ssm = false;        // for poles()
};

struct Output {
  at::Tensor hidden;  // [B, L, D], after the last norm
  State state;
  std::vector<at::Tensor> innovations;     // a layer each; undefined without eidetic memory
  std::vector<at::Tensor> selections;      // likewise: positions held after each piece
  std::vector<at::Tensor> visible;         // likewise: positions that each piece's queries see
  std::vector<AttentionTrace> attentions;  // a layer each, where they were to be kept
  std::vector<SsmTrace> ssms;              // likewise
  std::shared_ptr<const Layout> layout;
};

class Model {
 public:
  Model(model::Config config, Parameters parameters);

  // ids [B, L] -> hidden states and the state after each sequence's last token. An empty state
  // starts every sequence afresh.
  Output forward(const at::Tensor& ids, const State& state = {},
                 const CallOptions& call = {}) const;
  // The same from embeddings [B, L, D].
  Output forward_embedded(const at::Tensor& x, const at::Tensor& ids, const State& state,
                          const CallOptions& call) const;
  // [..., D] -> [..., V]
  at::Tensor logits(const at::Tensor& hidden) const;
  // Σ of -ln p(target) over the scored positions, times scale (linear_cross_entropy.h).
  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& targets, double scale = 1) const;

  const model::Config& config() const { return config_; }
  const Parameters& parameters() const { return parameters_; }
  const std::vector<Layer>& layers() const { return layers_; }
  const at::Tensor& parameter(const std::string& name) const;  // undefined where there is none

  // The same model in another type or on another device.
  Model to(const at::TensorOptions& options) const;
  void require_gradients();

 private:
  const at::Tensor& head() const;

  model::Config config_;
  Parameters parameters_;
  std::vector<Layer> layers_;
};

}  // namespace bmojo::nn
