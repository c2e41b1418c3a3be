#include "bmojo/nn/layer.h"

#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "bmojo/base/error.h"
#include "bmojo/nn/causal_conv.h"
#include "bmojo/nn/innovation.h"
#include "bmojo/nn/rows.h"
#include "bmojo/nn/selection.h"
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

// Rows of pools that may stand one behind the other, closed by a row of zeros.
at::Tensor make_pool(std::vector<at::Tensor> parts) {
  parts.push_back(at::zeros_like(parts.back().narrow(0, 0, 1)));
  return at::cat(parts);
}

at::Tensor take(const at::Tensor& pool, const at::Tensor& index, int64_t groups) {
  return take_rows(pool, index).unflatten(0, {groups, index.size(0) / groups});
}

}  // namespace

Layer::Layer(const Config& config, LayerKind kind, const Lookup& weight)
    : config_(config), kind_(kind), norm_(weight("norm.weight")) {
  in_ = weight("ssm.in_proj.weight");
  in_bias_ = weight("ssm.in_proj.bias");
  conv_ = weight("ssm.conv1d.weight");
  conv_bias_ = weight("ssm.conv1d.bias");
  x_proj_ = weight("ssm.x_proj.weight");
  dt_ = weight("ssm.dt_proj.weight");
  dt_bias_ = weight("ssm.dt_proj.bias");
  a_log_ = weight("ssm.A_log");
  d_ = weight("ssm.D");
  out_ = weight("ssm.out_proj.weight");
  out_bias_ = weight("ssm.out_proj.bias");
  q_ = weight("attention.q_proj.weight");
  k_ = weight("attention.k_proj.weight");
  v_ = weight("attention.v_proj.weight");
  o_ = weight("attention.o_proj.weight");
  fading_norm_ = weight("attention.fading_norm.weight");
  fading_k_ = config.fading_tied ? k_ : weight("attention.fading_k_proj.weight");
  fading_v_ = config.fading_tied ? v_ : weight("attention.fading_v_proj.weight");
  beta_ = weight("attention.innovation_bias");
  mlp_norm_ = weight("mlp.norm.weight");
  gate_ = weight("mlp.gate_proj.weight");
  up_ = weight("mlp.up_proj.weight");
  down_ = weight("mlp.down_proj.weight");
}

LayerOutput Layer::forward(const at::Tensor& x, const Layout& layout, const LayerState& state,
                           const at::Tensor& tokens, const at::Tensor& selection) const {
  LayerOutput out;
  const auto u = rms_norm(x, norm_, config_.norm_eps);
  at::Tensor y;
  if (kind_ != LayerKind::attention) y = ssm(u, layout, state, out.state);
  auto change = kind_ == LayerKind::ssm ? y : attend(u, y, layout, state, tokens, selection, out);
  if (kind_ == LayerKind::bmojo && config_.fading_residual) change = change + y;
  if (config_.mlp_size == 0) {
    out.x = x + change;
    return out;
  }
  const auto [mixed, v] = add_rms_norm(x, change, mlp_norm_, config_.norm_eps);
  out.x = mixed + mlp(v);
  return out;
}

at::Tensor Layer::ssm(const at::Tensor& u, const Layout& layout, const LayerState& state,
                      LayerState& next) const {
  const int64_t E = config_.ssm_inner_size, N = config_.ssm_state_size, R = config_.ssm_dt_rank;
  const auto xz = at::linear(u, in_, in_bias_).split(E, -1);
  // x̄ = silu(Σ_i tap_i ⊙ x_{t-i} + bias)
  const auto [x_bar, conv_tail] = causal_conv1d_silu({.x = xz[0],
                                                      .weight = conv_,
                                                      .bias = conv_bias_,
                                                      .tail = state.conv_tail,
                                                      .positions = layout.positions,
                                                      .lengths = lengths_of(layout)});
  next.conv_tail = conv_tail;

  const auto dbc = at::linear(x_bar, x_proj_).split_with_sizes({R, N, N}, -1);
  // h_t = exp(Δ_t A) ⊙ h_{t-1} + Δ_t B_t x̄_t;  y_t = W_out ((C_t·h_t + D ⊙ x̄_t) ⊙ silu(z_t))
  const auto [read, h] = selective_scan({.x = x_bar,
                                         .dt = at::linear(dbc[0], dt_),
                                         .z = xz[1],
                                         .B = dbc[1],
                                         .C = dbc[2],
                                         .A = -widen(a_log_).exp(),
                                         .D = widen(d_),
                                         .dt_bias = widen(dt_bias_),
                                         .h0 = state.ssm,
                                         .starts = layout.resets ? layout.starts : at::Tensor(),
                                         .lengths = lengths_of(layout)});
  next.ssm = h;
  return at::linear(read, out_, out_bias_);
}

// ŷ_t = Σ_{i=1..k} c_i · y_{t-i}, c_i ∝ γ^(i-1);  ε_t = rms over channels of (y_t - ŷ_t)
at::Tensor Layer::innovation(const at::Tensor& y, const Layout& layout, const LayerState& state,
                             LayerState& next) const {
  const int64_t k = config_.predictor_taps;
  double total = 0;
  for (int64_t i = 0; i < k; ++i) total += std::pow(config_.predictor_decay, i);
  std::vector<double> c;
  for (int64_t i = 0; i < k; ++i) c.push_back(std::pow(config_.predictor_decay, i) / total);
  const auto [epsilon, tail] = nn::innovation({.y = y,
                                               .tail = state.outputs,
                                               .positions = layout.positions,
                                               .lengths = lengths_of(layout),
                                               .coefficients = c});
  next.outputs = tail;
  return epsilon;
}

// A key and its value as one row, [..., 2, G, d]; the key turned to its own position.
at::Tensor Layer::key_value(const at::Tensor& x, const at::Tensor& w_k, const at::Tensor& w_v,
                            const at::Tensor& position) const {
  const auto heads = [&](const at::Tensor& w) {
    return at::linear(x, w).unflatten(-1, {config_.num_kv_heads, config_.head_size});
  };
  const auto k = heads(w_k);
  return at::stack(
      {config_.rope_theta > 0 ? rotate(k, position, config_.rope_theta) : k, heads(w_v)}, -3);
}

// One softmax over [eidetic | fading | window], a piece of one chunk at a time.
at::Tensor Layer::attend(const at::Tensor& u, const at::Tensor& y, const Layout& layout,
                         const LayerState& state, const at::Tensor& tokens,
                         const at::Tensor& selection, LayerOutput& out) const {
  require(state.window.size(1) == layout.window_rows_in,
          "forward: state must hold {} window rows, got {}; keep the window it was made with",
          layout.window_rows_in, state.window.size(1));
  auto q = at::linear(u, q_).unflatten(-1, {config_.num_heads, config_.head_size});
  if (config_.rope_theta > 0) q = rotate(q, layout.positions, config_.rope_theta);
  const auto kv = key_value(u, k_, v_, layout.positions);
  Keys keys;
  if (remembers()) add_eidetic(keys, y, kv, layout, state, tokens, selection, out);
  if (fades()) add_fading(keys, y, kv, layout, state, out.state);
  add_window(keys, kv, layout, state, out.state);
  return at::linear(mix(q, keys, layout), o_);
}

void Layer::add_eidetic(Keys& keys, const at::Tensor& y, const at::Tensor& kv, const Layout& layout,
                        const LayerState& state, const at::Tensor& tokens,
                        const at::Tensor& selection, LayerOutput& out) const {
  const int64_t B = layout.batch, w = config_.window, held = state.frozen.position.size(1);
  require(held <= config_.eidetic_tokens,
          "forward: state must hold at most {} eidetic tokens, got {}; start a new one",
          config_.eidetic_tokens, held);
  out.innovation = innovation(y, layout, state, out.state);
  const auto ids = tokens.defined() ? tokens : at::full_like(layout.positions, -1);
  const auto all = gather_candidates(state, layout, out.innovation, kv, ids);
  const auto chosen = select(all, layout, w, std::max(layout.eidetic_rows, held), selection);
  out.selection = chosen.kept;

  std::vector<int64_t> piece_row;
  for (const auto& piece : layout.pieces) piece_row.push_back(piece.row);
  const auto of_piece = torch::tensor(piece_row, torch::kLong).to(y.device());
  const auto of_row = at::arange(B, layout.positions.options());
  const auto pick = [&](const at::Tensor& x, const at::Tensor& which, const at::Tensor& source) {
    return take(x.flatten(0, 1), all.flat(which, source), which.size(0));
  };
  keys.rows.push_back(pick(all.kv, of_piece, chosen.visible));
  // Members that are still in the query's window are not seen twice.
  const auto position = pick(all.position, of_piece, chosen.visible).unsqueeze(1);
  keys.masks.push_back(position <= layout.query_positions.unsqueeze(2) - w);
  // Attention weight ∝ ε^β · exp(q·k/√d); here the gradient passes through ε.
  if (beta_.defined())
    keys.bias = widen(beta_) * (pick(all.innovation, of_piece, chosen.visible) + 1e-6).log();

  const auto set = [&](const at::Tensor& source) -> EideticSet {
    return {pick(all.innovation, of_row, source), pick(all.position, of_row, source),
            pick(all.token, of_row, source)};
  };
  out.state.eidetic = pick(all.kv, of_row, chosen.frozen);
  out.state.frozen = set(chosen.frozen);
  out.state.running = set(chosen.running);
}

// k_f, v_f = W_k n(y), W_v n(y), only where a chunk or a window will read them.
void Layer::add_fading(Keys& keys, const at::Tensor& y, const at::Tensor& kv, const Layout& layout,
                       const LayerState& state, LayerState& next) const {
  const int64_t B = layout.batch, P = std::ssize(layout.pieces);
  require(state.fading.size(1) == layout.fading_rows,
          "forward: state must hold {} fading rows, got {}; keep the window and fading_tokens",
          layout.fading_rows, state.fading.size(1));
  const auto y_f =
      rms_norm(take_rows(y.flatten(0, 1), layout.fading_token), fading_norm_, config_.norm_eps);
  const auto position = take_rows(layout.positions.flatten(), layout.fading_token);
  const auto zero = at::zeros_like(kv.flatten(0, 1).narrow(0, 0, 1));
  const auto pool =
      at::cat({state.fading.flatten(0, 1), key_value(y_f, fading_k_, fading_v_, position), zero});
  keys.rows.push_back(take(pool, layout.fading.index, P));
  keys.masks.push_back(layout.fading.mask.expand({P, layout.max_queries, -1}));
  next.fading = take(pool, layout.next_fading, B);
}

void Layer::add_window(Keys& keys, const at::Tensor& kv, const Layout& layout,
                       const LayerState& state, LayerState& next) const {
  const auto pool = make_pool({state.window.flatten(0, 1), kv.flatten(0, 1)});
  keys.rows.push_back(take(pool, layout.window.index, std::ssize(layout.pieces)));
  keys.masks.push_back(layout.window.mask);
  next.window = take(pool, layout.next_window, layout.batch);
}

// softmax(q·k/√d + bias) v over the visible keys; query head h reads key/value head floor(h G / H).
at::Tensor Layer::mix(const at::Tensor& q, const Keys& keys, const Layout& layout) const {
  const int64_t H = config_.num_heads, G = config_.num_kv_heads, d = config_.head_size,
                P = std::ssize(layout.pieces), Q = layout.max_queries;
  const auto rows = at::cat(keys.rows, 1);
  const auto k = rows.select(2, 0).permute({0, 2, 3, 1});  // [P, G, d, S]
  const auto v = rows.select(2, 1).permute({0, 2, 1, 3});  // [P, G, S, d]
  const auto queries = take(make_pool({q.flatten(0, 1)}), layout.query_index, P)
                           .unflatten(2, {G, H / G})
                           .permute({0, 2, 3, 1, 4})
                           .flatten(2, 3);  // [P, G, r Q, d]
  auto scores = widen(at::matmul(queries, k)) / std::sqrt(static_cast<double>(d));
  if (keys.bias.defined()) {
    const auto bias = at::constant_pad_nd(keys.bias, {0, rows.size(1) - keys.bias.size(1)});
    scores = scores + bias.unsqueeze(1).unsqueeze(1);
  }
  // A place without a query sees everything, so that its softmax stays finite; nothing reads it.
  const auto unused = (layout.query_index == layout.batch * layout.length).view({P, Q, 1});
  const auto visible = (at::cat(keys.masks, 2) | unused).repeat({1, H / G, 1}).unsqueeze(1);
  scores = scores.masked_fill(~visible, -std::numeric_limits<double>::infinity());
  const auto mixed = at::matmul(at::softmax(scores, -1).to(q.scalar_type()), v);
  const auto by_token =
      mixed.unflatten(2, {H / G, Q}).permute({0, 3, 1, 2, 4}).reshape({P * Q, H * d});
  return take(make_pool({by_token}), layout.output_index, layout.batch);
}

// SwiGLU
at::Tensor Layer::mlp(const at::Tensor& u) const {
  return at::linear(swiglu(at::linear(u, gate_), at::linear(u, up_)), down_);
}

LayerState Layer::initial_state(int64_t B) const {
  const auto options = norm_.options().requires_grad(false);
  const auto wide = options.dtype(compute_type(norm_)), whole = options.dtype(torch::kLong);
  const int64_t G = config_.num_kv_heads, d = config_.head_size;
  LayerState state;
  if (kind_ != LayerKind::attention) {
    state.conv_tail = at::zeros({B, config_.ssm_conv_taps - 1, config_.ssm_inner_size}, options);
    state.ssm = at::zeros({B, config_.ssm_inner_size, config_.ssm_state_size}, wide);
  }
  if (kind_ != LayerKind::ssm) state.window = at::zeros({B, 0, 2, G, d}, options);
  if (fades()) {
    const Layout one(config_, Rows{1, 1, {}, {}}, {}, options.device());
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
