#include "bmojo/nn/layer.h"

#include <torch/torch.h>

#include "bmojo/base/error.h"
#include "bmojo/memory/visibility.h"
#include "bmojo/nn/ops/causal_conv.h"
#include "bmojo/nn/ops/innovation.h"
#include "bmojo/nn/ops/linears.h"
#include "bmojo/nn/ops/memory_attention.h"
#include "bmojo/nn/ops/negative_exp.h"
#include "bmojo/nn/ops/rows.h"
#include "bmojo/nn/ops/selective_scan.h"
#include "bmojo/nn/ops/swiglu.h"
#include "bmojo/nn/ops/types.h"

// Shapes: B sequences, L tokens, D width, E inner width, N states, K taps, k predictor taps, H
// heads, G key/value heads, d head size, P pieces, S keys a piece, m eidetic places.

namespace bmojo::nn {
namespace {

// Empty where every sequence is as long as the call.
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
KeyList from_row(const KeyList& keys, int64_t first) {
  return {from_row(keys.index, first), keys.from, keys.until};
}

// Keys of all memories, side by side.
KeyList joined(std::initializer_list<KeyList> memories) {
  std::vector<at::Tensor> index, from, until;
  for (const auto& keys : memories) {
    if (!keys.index.defined()) continue;
    index.push_back(keys.index);
    from.push_back(keys.from);
    until.push_back(keys.until);
  }
  return {at::cat(index, 1), at::cat(from, 1), at::cat(until, 1)};
}

}  // namespace

Layer::Layer(const model::Config& config, int64_t index, const Lookup& lookup)
    : config_(config), index_(index), kind_(config.kind(index)) {
  model::LayerWeights<at::Tensor>::visit(w_, [&](const char* leaf, at::Tensor& weight) {
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
  const auto u = rms_norm(x, w_.norm, config_.norm_eps);
  auto in = map(u);
  const auto fading = ssm(std::move(in.xz), layout, state, call);
  const auto q = queries(std::move(in.q), layout);
  const auto pool = gather(std::move(in.k), std::move(in.v), fading.y, layout, state);
  const auto [epsilon, outputs] = innovation(fading.y, layout, state);
  const auto eidetic = eidetic_keys(epsilon, pool, layout, state, call);
  const auto faded = fading_keys(pool, layout);
  const auto window = window_keys(pool, layout);
  const auto attention = attend(q, pool, eidetic, faded, window, layout);
  const auto change = mix(attention.mixed, fading.y, layout);
  return {.x = add_mlp(x, change),
          .state = {.conv_tail = fading.conv_tail,
                    .ssm = fading.h,
                    .outputs = outputs,
                    .window = window.next,
                    .fading = faded.next,
                    .eidetic = eidetic.next,
                    .frozen = eidetic.frozen,
                    .running = eidetic.running},
          .innovation = epsilon,
          .selection = eidetic.kept,
          .visible = eidetic.visible,
          .attention = call.keep_attention ? attention : AttentionTrace{},
          .ssm = fading.trace};
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

Layer::Fading Layer::ssm(at::Tensor xz, const Layout& layout, const LayerState& state,
                         const LayerCall& call) const {
  if (kind_ == model::LayerKind::attention) return {};
  const int64_t E = config_.ssm_inner_size, N = config_.ssm_state_size, R = config_.ssm_dt_rank;
  const auto parts = xz.split(E, -1);
  // x̄ = silu(Σ_i tap_i ⊙ x_{t-i} + bias)
  const auto [x_bar, conv_tail] = causal_conv1d_silu({.x = parts[0],
                                                      .weight = w_.conv,
                                                      .bias = w_.conv_bias,
                                                      .tail = state.conv_tail,
                                                      .positions = layout.positions,
                                                      .lengths = lengths_of(layout)});
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
  const auto y =
      w_.out_bias.defined() ? linear_map(read, w_.out, w_.out_bias) : linear_map(read, w_.out);
  SsmTrace trace;
  if (call.keep_ssm) trace = {.dt = widen(dt), .dt_bias = dt_bias, .A = A, .y = y};
  return {.y = y, .conv_tail = conv_tail, .h = h, .trace = trace};
}

at::Tensor Layer::heads(const at::Tensor& x) const {
  return x.unflatten(-1, {x.size(-1) / config_.head_size, config_.head_size});
}

// A key and its value as one row, [..., 2, G, d]; the key turned to its own position.
at::Tensor Layer::key_value(const at::Tensor& k, const at::Tensor& v, const Angles& angles) const {
  return at::stack({config_.rope_theta > 0 ? rotate(heads(k), angles) : heads(k), heads(v)}, -3);
}

// [B L, H, d], turned to their positions.
at::Tensor Layer::queries(const at::Tensor& q, const Layout& layout) const {
  if (!attends()) return {};
  return (config_.rope_theta > 0 ? rotate(heads(q), layout.angles) : heads(q)).flatten(0, 1);
}

// The keys and values of all memories as rows of one pool:
// [nothing | window of the state | tokens | fading of the state | new fading | eidetic].
Layer::Pool Layer::gather(at::Tensor k, at::Tensor v, const at::Tensor& y, const Layout& layout,
                          const LayerState& state) const {
  if (!attends()) return {};
  const int64_t B = layout.batch, W = layout.window_rows_in;
  base::require(state.window.size(1) == W,
                "forward: state must hold {} window rows, got {}; keep the window it was made with",
                W, state.window.size(1));
  const auto kv = key_value(k, v, layout.angles);
  k.reset(), v.reset();  // what they hold is now in kv
  std::vector<at::Tensor> parts = {at::zeros_like(kv[0].narrow(0, 0, 1)),
                                   state.window.flatten(0, 1), kv.flatten(0, 1)};
  PoolRows first{.window = 1, .tokens = 1 + B * W, .fading = 1 + B * W + B * layout.length};
  if (fades()) {
    parts.push_back(state.fading.flatten(0, 1));
    parts.push_back(project_fading(y, layout, state));
  }
  for (const auto& part : parts) first.eidetic += part.size(0);
  if (remembers()) parts.push_back(state.eidetic.flatten(0, 1));
  return {.rows = at::cat(parts), .first = first};
}

// ŷ_t = Σ_{i=1..k} c_i · y_{t-i}, c_i ∝ γ^(i-1);  ε_t = rms over channels of (y_t - ŷ_t)
InnovationResult Layer::innovation(const at::Tensor& y, const Layout& layout,
                                   const LayerState& state) const {
  if (!remembers()) return {};
  return nn::innovation({.y = y,
                         .tail = state.outputs,
                         .positions = layout.positions,
                         .lengths = lengths_of(layout),
                         .coefficients = predictor(config_)});
}

// Innovation Selection: M, and what each piece's queries see of it.
Layer::Eidetic Layer::eidetic_keys(const at::Tensor& epsilon, const Pool& pool,
                                   const Layout& layout, const LayerState& state,
                                   const LayerCall& call) const {
  if (!remembers()) return {};
  const int64_t B = layout.batch, w = config_.window, held = state.frozen.position.size(1);
  base::require(held <= config_.eidetic_tokens,
                "forward: state must hold at most {} eidetic tokens, got {}; start a new one",
                config_.eidetic_tokens, held);
  const auto ids = call.tokens.defined() ? call.tokens : at::full_like(layout.positions, -1);
  const auto all = gather_candidates(state, layout, epsilon, ids, pool.first);
  const auto chosen = select(all, {config_.eidetic_rule, index_, call.selection}, layout, w,
                             std::max(layout.eidetic_rows, held));
  const auto of_sequence = at::arange(B, layout.positions.options());
  const auto pick = [&](const at::Tensor& x, const at::Tensor& which, const at::Tensor& source) {
    return rows_at(x.flatten(), all.flat(which, source));
  };
  const auto set = [&](const at::Tensor& source) -> EideticSet {
    return {pick(all.innovation, of_sequence, source), pick(all.position, of_sequence, source),
            pick(all.token, of_sequence, source)};
  };

  Eidetic out;
  out.kept = chosen.kept;
  out.visible = pick(all.position, layout.piece_sequence, chosen.visible);
  // Members that are still in the query's window are not seen twice.
  const auto nothing = out.visible == kNowhere;
  const auto seen_from = memory::EideticMemory{w}.seen_from(out.visible.masked_fill(nothing, 0));
  const auto begin = layout.query_positions.unsqueeze(1);
  const auto last = at::full_like(out.visible, layout.queries.max_queries);
  out.list = {pick(all.row, layout.piece_sequence, chosen.visible),
              (seen_from - begin).clamp_min(0), last.masked_fill(nothing, 0)};
  out.bias =
      eidetic_bias({.innovation = pick(all.innovation, layout.piece_sequence, chosen.visible),
                    .there = ~nothing,
                    .beta = w_.beta,
                    .cut = call.cut});
  out.next = rows_at(pool.rows, pick(all.row, of_sequence, chosen.frozen));
  out.frozen = set(chosen.frozen);
  out.running = set(chosen.running);
  return out;
}

Layer::Keys Layer::fading_keys(const Pool& pool, const Layout& layout) const {
  if (!fades()) return {};
  const int64_t first = pool.first.fading;
  const auto next = from_row(layout.next_fading, first).view({layout.batch, layout.fading_rows});
  return {.list = from_row(layout.fading, first), .next = rows_at(pool.rows, next)};
}

Layer::Keys Layer::window_keys(const Pool& pool, const Layout& layout) const {
  if (!attends()) return {};
  const int64_t first = pool.first.window;
  const auto next =
      from_row(layout.next_window, first).view({layout.batch, layout.window_rows_out});
  return {.list = from_row(layout.window, first), .next = rows_at(pool.rows, next)};
}

// One softmax over [eidetic | fading | window], a piece of one chunk at a time.
AttentionTrace Layer::attend(const at::Tensor& q, const Pool& pool, const Eidetic& eidetic,
                             const Keys& faded, const Keys& window, const Layout& layout) const {
  if (!attends()) return {};
  const auto keys = joined({eidetic.list, faded.list, window.list});
  const auto mixed = memory_attention(
      {.q = q, .pool = pool.rows, .bias = eidetic.bias, .runs = layout.queries, .keys = keys});
  return {.q = q,
          .pool = pool.rows,
          .bias = eidetic.bias,
          .keys = keys,
          .eidetic = eidetic.visible,
          .num_fading = fades() ? layout.fading.index.size(1) : 0,
          .mixed = mixed};
}

// W_o a [+ y]
at::Tensor Layer::mix(const at::Tensor& attended, const at::Tensor& y, const Layout& layout) const {
  if (!attends()) return y;
  const auto change = linear_map(attended.view({layout.batch, layout.length, -1}), w_.o);
  return kind_ == model::LayerKind::bmojo && config_.fading_residual ? change + y : change;
}

// x + change, and SwiGLU of its norm
at::Tensor Layer::add_mlp(const at::Tensor& x, const at::Tensor& change) const {
  if (config_.mlp_size == 0) return x + change;
  const auto [mixed, u] = add_rms_norm(x, change, w_.mlp_norm, config_.norm_eps);
  const auto both = linears(u, {{w_.gate, w_.up}});
  return mixed + swiglu_linear(both[0], both[1], w_.down);
}

// k_f, v_f = W_k n(y), W_v n(y), only where a chunk or a window will read them.
at::Tensor Layer::project_fading(const at::Tensor& y, const Layout& layout,
                                 const LayerState& state) const {
  base::require(
      state.fading.size(1) == layout.fading_rows,
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

LayerState Layer::initial_state(int64_t B) const {
  const auto options = w_.norm.options().requires_grad(false);
  const auto wide = options.dtype(compute_type(w_.norm)), whole = options.dtype(torch::kLong);
  const int64_t G = config_.num_kv_heads, d = config_.head_size;
  LayerState state;
  if (kind_ != model::LayerKind::attention) {
    state.conv_tail = at::zeros({B, config_.ssm_conv_taps - 1, config_.ssm_inner_size}, options);
    state.ssm = at::zeros({B, config_.ssm_inner_size, config_.ssm_state_size}, wide);
  }
  if (kind_ != model::LayerKind::ssm) state.window = at::zeros({B, 0, 2, G, d}, options);
  if (fades()) {
    const memory::FadingMemory fading{config_.window, config_.fading_tokens,
                                      config_.fading_sliding()};
    state.fading = at::zeros({B, fading.num_rows(), 2, G, d}, options);
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
