#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "bmojo/model/config.h"
#include "bmojo/model/layer_weights.h"
#include "bmojo/nn/attention_weights.h"
#include "bmojo/nn/eidetic_bias.h"
#include "bmojo/nn/layout.h"
#include "bmojo/nn/norm.h"
#include "bmojo/nn/rotary.h"
#include "bmojo/nn/selection.h"
#include "bmojo/nn/ssm_trace.h"
#include "bmojo/nn/state.h"

namespace bmojo::nn {

// Looks a parameter of the layer up by its leaf name, e.g. "ssm.in_proj.weight"; undefined where
// the config has none.
using Lookup = std::function<at::Tensor(const std::string& leaf)>;

// What a call may tell a layer beside its input. Undefined tensors: nothing.
struct LayerCall {
  at::Tensor tokens;     // [B, L] ids, to show what is remembered and for `eidetic_rule=random`
  at::Tensor selection;  // as LayerOutput has it: used in place of the layer's own choice
  SoftCut cut;           // training only
  bool keep_attention = false;  // for attention_weights()
  bool keep_ssm = false;        // for poles()
};

struct LayerOutput {
  at::Tensor x;              // [B, L, D]
  LayerState state;          //
  at::Tensor innovation;     // [B, L], undefined without eidetic memory
  at::Tensor selection;      // [P, m] positions held after each piece, undefined likewise
  at::Tensor visible;        // [P, m] positions in the set that each piece's queries see, likewise
  AttentionInput attention;  // where it was to be kept
  SsmTrace ssm;              // likewise
};

// One layer of any kind: B'MOJO, SSM or attention, with or without an MLP.
class Layer {
 public:
  Layer(const Config& config, int64_t index, const Lookup& weight);

  // x [B, L, D]
  LayerOutput forward(const at::Tensor& x, const Layout& layout, const LayerState& state,
                      const LayerCall& call = {}) const;

  // What a layer carries before the first token.
  LayerState initial_state(int64_t batch) const;

  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  struct Mapped {
    at::Tensor xz;       // [B, L, 2 E]
    at::Tensor q, k, v;  // [B, L, heads · d]
  };
  Mapped map(const at::Tensor& u) const;
  at::Tensor ssm(at::Tensor xz, const Layout& layout, const LayerState& state,
                 const LayerCall& call, LayerOutput& out) const;
  at::Tensor innovation(const at::Tensor& y, const Layout& layout, const LayerState& state,
                        LayerState& next) const;
  at::Tensor attend(Mapped in, const at::Tensor& y, const Layout& layout, const LayerState& state,
                    const LayerCall& call, LayerOutput& out) const;
  // What the queries of each piece may attend to, memory after memory.
  struct Keys {
    std::vector<at::Tensor> index, from, until;  // [P, S] each
    at::Tensor bias;                             // [P, S] of the first memory; undefined: none

    void add(const KeyList& more);
    KeyList list() const;
  };
  void add_eidetic(Keys& keys, const at::Tensor& y, const at::Tensor& pool, const PoolRows& first,
                   const Layout& layout, const LayerState& state, const LayerCall& call,
                   LayerOutput& out) const;
  at::Tensor fading_rows(const at::Tensor& y, const Layout& layout, const LayerState& state) const;
  at::Tensor mlp(const at::Tensor& u) const;
  at::Tensor heads(const at::Tensor& x) const;  // [..., heads · d] -> [..., heads, d]
  at::Tensor key_value(const at::Tensor& k, const at::Tensor& v, const Angles& angles) const;

  bool remembers() const { return kind_ == LayerKind::bmojo && config_.eidetic_tokens > 0; }
  bool fades() const { return kind_ == LayerKind::bmojo && config_.fading_tokens > 0; }

  Config config_;
  int64_t index_;
  LayerKind kind_;
  std::vector<at::Tensor> parameters_;
  LayerWeights<at::Tensor> w_;
};

}  // namespace bmojo::nn
