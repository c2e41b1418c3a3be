#include "bmojo/nn/layer.h"

#include <torch/torch.h>

#include <limits>

#include "bmojo/base/error.h"
#include "bmojo/nn/causal_conv.h"
#include "bmojo/nn/innovation.h"
#include "bmojo/nn/linears.h"
#include "bmojo/nn/memory_attention.h"
#include "bmojo/nn/negative_exp.h"
#include "bmojo/nn/rows.h"
#include "bmojo/nn/selective_scan.h"
#include "bmojo/nn/swiglu.h"
#include "bmojo/nn/types.h"

// Shapes: B rows, L tokens, D width, E inner width, N states, K taps, k predictor taps, H heads,
// G key/value heads, r = H / G, d head size, P pieces, Q queries a piece, S keys a piece.

namespace bmojo::nn {
namespace {

// Empty where every row is as long as the call.
std::vector<int64_t> lengths_of(const Layout& layout) {
  return layout.ragged ? layout.lengths : std::vector<int64_t>{};
}

// Rows of `pool` by index [groups, n] -> [groups, n, …].
at::Tensor rows_at(const at::Tensor& pool, const at::Tensor& index) {
  return take_rows(pool, index.flatten()).unflatten(0, index.sizes());
}

// Indices that count from a part's own first row, with -1 for nothing, as rows of the pool.
at::Tensor from_row(const at::Tensor& index, int64_t first) {
  return (index + first).masked_fill(index < 0, 0);
}

}  // namespace

Layer::Layer(const Config& config, int64_t index, const Lookup& lookup)
    : config_(config), index_(index), kind_(config.kind(index)) {
  LayerWeights<at::Tensor>::visit(w_, [&](const char* leaf, at::Tensor& weight) {
    weight = lookup(leaf);
    if (weight.defined()) parameters_.push_back(weight);
  });
  if (config.fading_tied) {
    w_.fading_k = w_.k;
    w_.fading_v = w_.v;
  }
}

LayerOutput Layer::forward(const at::Tensor& x, const Layout& layout, const LayerState& state,
                           const LayerCall& call) const {
  LayerOutput out;
  const auto u = rms_norm(x, w_.norm, config_.norm_eps);
  auto in = map(u);
  at::Tensor y;
  if (kind_ != LayerKind::attention) y = ssm(std::move(in.xz), layout, state, call, out);
  auto change = y;
  if (kind_ != LayerKind::ssm) change = attend(std::move(in), y, layout, state, call, out);
  if (kind_ == LayerKind::bmojo && config_.fading_residual) change = change + y;
  if (config_.mlp_size == 0) {
    out.x = x + change;
    return out;
  }
  const auto [mixed, v] = add_rms_norm(x, change, w_.mlp_norm, config_.norm_eps);
  out.x = mixed + mlp(v);
  return out;
}

// [x | z], q, k and v of the normed input u, as far as the layer has them.
Layer::Mapped Layer::map(const at::Tensor& u) const {
  std::vector<std::vector<at::Tensor>> groups;
  if (w_.in.defined() && !w_.in_bias.defined()) groups.push_back({w_.in});
  if (w_.q.defined() && config_.rope_theta > 0) {
    groups.push_back({w_.q, w_.k, w_.v});
  } else if (w_.q.defined()) {
    // q stays for the backward pass, and would keep k and v.
    groups.push_back({w_.q});
    groups.push_back({w_.k, w_.v});
  }
  const auto y = linears(u, groups);
  auto next = y.begin();
  Mapped out;
  if (w_.in.defined()) out.xz = w_.in_bias.defined() ? linear_map(u, w_.in, w_.in_bias) : *next++;
  if (w_.q.defined()) {
    out.q = *next++;
    out.k = *next++;
    out.v = *next++;
  }
  return out;
}

at::Tensor Layer::ssm(at::Tensor xz, const Layout& layout, const LayerState& state,
                      const LayerCall& call, LayerOutput& out) const {
  const int64_t E = config_.ssm_inner_size, N = config_.ssm_state_size, R = config_.ssm_dt_rank;
  const auto parts = xz.split(E, -1);
  // x̄ = silu(Σ_i tap_i ⊙ x_{t-i} + bias)
  const auto [x_bar, conv_tail] = causal_conv1d_silu({.x = parts[0],
                                                      .weight = w_.conv,
                                                      .bias = w_.conv_bias,
                                                      .tail = state.conv_tail,
                                                      .positions = layout.positions,
                                                      .lengths = lengths_of(layout)});
  out.state.conv_tail = conv_tail;

  const auto dbc = linear_map(x_bar, w_.x).split_with_sizes({R, N, N}, -1);
  const auto dt = linear_map(dbc[0], w_.dt), A = negative_exp(w_.a_log),
             dt_bias = widen(w_.dt_bias);
  // h_t = exp(Δ_t A) ⊙ h_{t-1} + Δ_t B_t x̄_t;  y_t = W_out ((C_t·h_t + D ⊙ x̄_t) ⊙ silu(z_t))
  const auto [read, h] = selective_scan({.x = x_bar,
                                         .dt = dt,
                                         .z = parts[1],
                                         .B = dbc[1],
                                         .C = dbc[2],
                                         .A = A,
                                         .D = widen(w_.d),
                                         .dt_bias = dt_bias,
                                         .h0 = state.ssm,
                                         .starts = layout.resets ? layout.starts : at::Tensor(),
                                         .lengths = lengths_of(layout)});
  out.state.ssm = h;
  const auto y =
      w_.out_bias.defined() ? linear_map(read, w_.out, w_.out_bias) : linear_map(read, w_.out);
  if (call.keep_ssm) out.ssm = {.dt = widen(dt), .dt_bias = dt_bias, .A = A, .y = y};
  return y;
}

// ŷ_t = Σ_{i=1..k} c_i · y_{t-i}, c_i ∝ γ^(i-1);  ε_t = rms over channels of (y_t - ŷ_t)
at::Tensor Layer::innovation(const at::Tensor& y, const Layout& layout, const LayerState& state,
                             LayerState& next) const {
  const auto [epsilon, tail] = nn::innovation({.y = y,
                                               .tail = state.outputs,
                                               .positions = layout.positions,
                                               .lengths = lengths_of(layout),
                                               .coefficients = predictor(config_)});
  next.outputs = tail;
  return epsilon;
}

at::Tensor Layer::heads(const at::Tensor& x) const {
  return x.unflatten(-1, {x.size(-1) / config_.head_size, config_.head_size});
}

// A key and its value as one row, [..., 2, G, d]; the key turned to its own position.
at::Tensor Layer::key_value(const at::Tensor& k, const at::Tensor& v, const Angles& angles) const {
  return at::stack({config_.rope_theta > 0 ? rotate(heads(k), angles) : heads(k), heads(v)}, -3);
}

void Layer::Keys::add(const KeyList& more) {
  index.push_back(more.index);
  from.push_back(more.from);
  until.push_back(more.until);
}

KeyList Layer::Keys::list() const {
  return {at::cat(index, 1), at::cat(from, 1), at::cat(until, 1)};
}

// One softmax over [eidetic | fading | window], a piece of one chunk at a time. The keys and values
// of all memories are rows of one pool: [nothing | window of the state | tokens | fading |
// eidetic].
at::Tensor Layer::attend(Mapped in, const at::Tensor& y, const Layout& layout,
                         const LayerState& state, const LayerCall& call, LayerOutput& out) const {
  const int64_t B = layout.batch, W = layout.window_rows_in;
  require(state.window.size(1) == W,
          "forward: state must hold {} window rows, got {}; keep the window it was made with", W,
          state.window.size(1));
  auto q = heads(in.q);
  if (config_.rope_theta > 0) q = rotate(q, layout.angles);
  const auto kv = key_value(in.k, in.v, layout.angles);
  in = {};  // frees what is now in q and kv
  std::vector<at::Tensor> parts = {at::zeros_like(kv[0].narrow(0, 0, 1)),
                                   state.window.flatten(0, 1), kv.flatten(0, 1)};
  PoolRows first{.window = 1, .tokens = 1 + B * W, .eidetic = 0};
  const int64_t fading = first.tokens + B * layout.length;
  if (fades()) {
    parts.push_back(state.fading.flatten(0, 1));
    parts.push_back(fading_rows(y, layout, state));
  }
  first.eidetic = fading + (fades() ? parts[3].size(0) + parts[4].size(0) : 0);
  if (remembers()) parts.push_back(state.eidetic.flatten(0, 1));
  const auto pool = at::cat(parts);

  Keys keys;
  if (remembers()) add_eidetic(keys, y, pool, first, layout, state, call, out);
  if (fades()) {
    keys.add({from_row(layout.fading.index, fading), layout.fading.from, layout.fading.until});
    out.state.fading = rows_at(pool, from_row(layout.next_fading, fading).view({B, -1}));
  }
  keys.add({from_row(layout.window.index, first.window), layout.window.from, layout.window.until});
  out.state.window =
      rows_at(pool, from_row(layout.next_window, first.window).view({B, layout.window_rows_out}));
  q = q.flatten(0, 1);
  const auto list = keys.list();
  const auto mixed = memory_attention(
      {.q = q, .pool = pool, .bias = keys.bias, .runs = layout.queries, .keys = list});
  if (call.keep_attention)
    out.attention = {.q = q,
                     .pool = pool,
                     .bias = keys.bias,
                     .keys = list,
                     .eidetic = out.visible,
                     .num_fading = fades() ? layout.fading.index.size(1) : 0,
                     .mixed = mixed};
  return linear_map(mixed.view({B, layout.length, -1}), w_.o);
}

void Layer::add_eidetic(Keys& keys, const at::Tensor& y, const at::Tensor& pool,
                        const PoolRows& first, const Layout& layout, const LayerState& state,
                        const LayerCall& call, LayerOutput& out) const {
  const int64_t B = layout.batch, w = config_.window, held = state.frozen.position.size(1);
  require(held <= config_.eidetic_tokens,
          "forward: state must hold at most {} eidetic tokens, got {}; start a new one",
          config_.eidetic_tokens, held);
  out.innovation = innovation(y, layout, state, out.state);
  const auto ids = call.tokens.defined() ? call.tokens : at::full_like(layout.positions, -1);
  const auto all = gather_candidates(state, layout, out.innovation, ids, first);
  const auto chosen = select(all, {config_.eidetic_rule, index_, call.selection}, layout, w,
                             std::max(layout.eidetic_rows, held));
  out.selection = chosen.kept;

  const auto of_row = at::arange(B, layout.positions.options());
  const auto pick = [&](const at::Tensor& x, const at::Tensor& which, const at::Tensor& source) {
    return rows_at(x.flatten(), all.flat(which, source));
  };
  // Members that are still in the query's window are not seen twice: from p + w on.
  const auto position = pick(all.position, layout.piece_row, chosen.visible);
  const auto nothing = position == kNowhere;
  out.visible = position;
  const auto begin = layout.query_positions.unsqueeze(1);
  const auto last = at::full_like(position, layout.queries.max_queries);
  keys.add({pick(all.row, layout.piece_row, chosen.visible),
            (position.masked_fill(nothing, 0) + w - begin).clamp_min(0),
            last.masked_fill(nothing, 0)});
  keys.bias = eidetic_bias({.innovation = pick(all.innovation, layout.piece_row, chosen.visible),
                            .there = ~nothing,
                            .beta = w_.beta,
                            .cut = call.cut});

  const auto set = [&](const at::Tensor& source) -> EideticSet {
    return {pick(all.innovation, of_row, source), pick(all.position, of_row, source),
            pick(all.token, of_row, source)};
  };
  out.state.eidetic = rows_at(pool, pick(all.row, of_row, chosen.frozen));
  out.state.frozen = set(chosen.frozen);
  out.state.running = set(chosen.running);
}

// k_f, v_f = W_k n(y), W_v n(y), only where a chunk or a window will read them.
at::Tensor Layer::fading_rows(const at::Tensor& y, const Layout& layout,
                              const LayerState& state) const {
  require(state.fading.size(1) == layout.fading_rows,
          "forward: state must hold {} fading rows, got {}; keep the window and fading_tokens",
          layout.fading_rows, state.fading.size(1));
  const auto y_f =
      rms_norm(take_rows(y.flatten(0, 1), layout.fading_token), w_.fading_norm, config_.norm_eps);
  Angles angles;
  if (config_.rope_theta > 0)
    angles = {take_rows(layout.angles.cos.flatten(0, 1), layout.fading_token),
              take_rows(layout.angles.sin.flatten(0, 1), layout.fading_token)};
  const auto kv = linears(y_f, {{w_.fading_k, w_.fading_v}});
  return key_value(kv[0], kv[1], angles);
}

// SwiGLU
at::Tensor Layer::mlp(const at::Tensor& u) const {
  const auto both = linears(u, {{w_.gate, w_.up}});
  return swiglu_linear(both[0], both[1], w_.down);
}

LayerState Layer::initial_state(int64_t B) const {
  const auto options = w_.norm.options().requires_grad(false);
  const auto wide = options.dtype(compute_type(w_.norm)), whole = options.dtype(torch::kLong);
  const int64_t G = config_.num_kv_heads, d = config_.head_size;
  LayerState state;
  if (kind_ != LayerKind::attention) {
    state.conv_tail = at::zeros({B, config_.ssm_conv_taps - 1, config_.ssm_inner_size}, options);
    state.ssm = at::zeros({B, config_.ssm_inner_size, config_.ssm_state_size}, wide);
  }
  if (kind_ != LayerKind::ssm) state.window = at::zeros({B, 0, 2, G, d}, options);
  if (fades()) {
    const Layout one(config_, Sequences{1, 1, {}, {}}, {}, options);
    state.fading = at::zeros({B, one.fading_rows, 2, G, d}, options);
  }
  if (remembers()) {
    state.outputs = at::zeros({B, config_.predictor_taps, config_.hidden_size}, options);
    state.eidetic = at::zeros({B, 0, 2, G, d}, options);
    state.frozen = {at::zeros({B, 0}, wide), at::zeros({B, 0}, whole), at::zeros({B, 0}, whole)};
    state.running = state.frozen;
  }
  return state;
}

}  // namespace bmojo::nn
