#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "bmojo/model/config.h"
#include "bmojo/model/layer_weights.h"
#include "bmojo/nn/attention_weights.h"
#include "bmojo/nn/layout.h"
#include "bmojo/nn/ops/eidetic_bias.h"
#include "bmojo/nn/ops/innovation.h"
#include "bmojo/nn/ops/norm.h"
#include "bmojo/nn/ops/rotary.h"
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
  AttentionTrace attention;  // where it was to be kept
  SsmTrace ssm;              // likewise
};

// One layer of any kind: B'MOJO, SSM or attention, with or without an MLP.
class Layer {
 public:
  Layer(const model::Config& config, int64_t index, const Lookup& weight);

  // x [B, L, D]
  LayerOutput forward(const at::Tensor& x, const Layout& layout, const LayerState& state,
                      const LayerCall& call = {}) const;

  // What a layer carries before the first token.
  LayerState initial_state(int64_t batch) const;

  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  // What the steps of forward() hand on: each what it computed, and beside it what the next call
  // will find. A layer that has no such part gets an empty one.
  struct Mapped {
    at::Tensor xz;       // [B, L, 2 E]
    at::Tensor q, k, v;  // [B, L, heads · d]
  };
  struct Fading {
    at::Tensor y;             // [B, L, D]
    at::Tensor conv_tail, h;  // next
    SsmTrace trace;           // where it was to be kept
  };
  struct Pool {
    at::Tensor rows;  // [R, 2, G, d] all keys and values of the call
    PoolRows first;
  };
  struct Keys {
    KeyList list;     // [P, S]
    at::Tensor next;  // rows
  };
  struct Eidetic : Keys {
    EideticSet frozen, running;  // next
    at::Tensor bias;             // [P, S]; undefined: none
    at::Tensor kept, visible;    // [P, m] positions, as LayerOutput has them
  };

  Mapped map(const at::Tensor& u) const;
  Fading ssm(at::Tensor xz, const Layout& layout, const LayerState& state,
             const LayerCall& call) const;
  at::Tensor queries(const at::Tensor& q, const Layout& layout) const;
  Pool gather(at::Tensor k, at::Tensor v, const at::Tensor& y, const Layout& layout,
              const LayerState& state) const;
  InnovationResult innovation(const at::Tensor& y, const Layout& layout,
                              const LayerState& state) const;
  Eidetic eidetic_keys(const at::Tensor& epsilon, const Pool& pool, const Layout& layout,
                       const LayerState& state, const LayerCall& call) const;
  Keys fading_keys(const Pool& pool, const Layout& layout) const;
  Keys window_keys(const Pool& pool, const Layout& layout) const;
  AttentionTrace attend(const at::Tensor& q, const Pool& pool, const Eidetic& eidetic,
                        const Keys& faded, const Keys& window, const Layout& layout) const;
  at::Tensor mix(const at::Tensor& attended, const at::Tensor& y, const Layout& layout) const;
  at::Tensor add_mlp(const at::Tensor& x, const at::Tensor& change) const;

  at::Tensor project_fading(const at::Tensor& y, const Layout& layout,
                            const LayerState& state) const;
  at::Tensor heads(const at::Tensor& x) const;  // [..., heads · d] -> [..., heads, d]
  at::Tensor key_value(const at::Tensor& k, const at::Tensor& v, const Angles& angles) const;

  bool attends() const { return kind_ != model::LayerKind::ssm; }
  bool remembers() const { return kind_ == model::LayerKind::bmojo && config_.eidetic_tokens > 0; }
  bool fades() const { return kind_ == model::LayerKind::bmojo && config_.fading_tokens > 0; }

  model::Config config_;
  int64_t index_;
  model::LayerKind kind_;
  std::vector<at::Tensor> parameters_;
  model::LayerWeights<at::Tensor> w_;
};

}  // namespace bmojo::nn
