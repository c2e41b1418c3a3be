#include "bmojo/infer/layer.h"

#include <algorithm>

#include "bmojo/infer/tell.h"
#include "bmojo/kernels/causal_conv.h"
#include "bmojo/kernels/eidetic_bias.h"
#include "bmojo/kernels/innovation.h"
#include "bmojo/kernels/memory_attention.h"
#include "bmojo/kernels/norm.h"
#include "bmojo/kernels/rotary.h"
#include "bmojo/kernels/rotary_table.h"
#include "bmojo/kernels/selective_scan.h"
#include "bmojo/kernels/swiglu.h"

// The layer of nn/layer.cpp, call by call, on the same kernels: both give the same bits.

namespace bmojo::infer {
namespace {

using kernels::View;

// `n` numbers of an array that only grows.
float* room(std::vector<float>& array, int64_t n) {
  if (std::ssize(array) < n) array.resize(static_cast<size_t>(n));
  return array.data();
}
int64_t* room(std::vector<int64_t>& array, int64_t n) {
  if (std::ssize(array) < n) array.resize(static_cast<size_t>(n));
  return array.data();
}

// work(run, its number, parallel): one run has all threads, several have one each.
template <typename Work>
void for_runs(const Call& c, const Work& work) {
  if (c.runs.size() == 1) return work(c.runs[0], 0, c.parallel);
  c.parallel(std::ssize(c.runs), [&](int64_t i) {
    work(c.runs[static_cast<size_t>(i)], i, kernels::ParallelFor(kernels::serial_for));
  });
}

LayerState& state_of(const Run& run, int64_t layer) {
  return run.state->layers[static_cast<size_t>(layer)];
}

// out [T, N] = W x
float* map(const Call& c, const PackedMatrix& w, View x, int64_t T, std::vector<float>& out) {
  float* to = room(out, T * w.N);
  if (T > 0)
    kernels::packed_product({.M = T, .x = x, .w = w, .out = to, .out_stride = w.N}, c.parallel);
  return to;
}

// to += x, and rows of a bias
void add(float* to, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += x[i];
}
void add_bias(float* to, int64_t T, int64_t stride, const float* bias, int64_t n) {
  if (bias == nullptr) return;
  for (int64_t t = 0; t < T; ++t) add(to + t * stride, bias, n);
}

void rms_norm(const Call& c, View x, int64_t n, const float* gain, float* out) {
  const auto& config = c.weights.config;
  kernels::rms_norm({.R = n,
                     .D = config.hidden_size,
                     .x = x,
                     .gain = gain,
                     .eps = static_cast<float>(config.norm_eps)},
                    nullptr, out, nullptr, c.parallel);
}

// y = W_out ((C·h + D ⊙ x̄) ⊙ silu(z)), from x and z in ws.xzq
void ssm(const Call& c, const PackedLayer& w, int64_t layer) {
  const auto& config = c.weights.config;
  auto& ws = c.ws;
  const int64_t E = config.ssm_inner_size, N = config.ssm_state_size, R = config.ssm_dt_rank,
                depth = config.ssm_conv_taps - 1, stride = w.xzq.N;
  float* x_bar = room(ws.x_bar, c.T * E);
  float* tails = room(ws.conv_tail, std::ssize(c.runs) * depth * E);
  for_runs(c, [&](const Run& run, int64_t i, const kernels::ParallelFor& parallel) {
    auto& tail = state_of(run, layer).conv_tail;
    kernels::causal_conv1d_silu({.history = {.B = 1,
                                             .L = run.count(),
                                             .C = E,
                                             .depth = depth,
                                             .x = {ws.xzq.data() + run.first * stride, stride},
                                             .tail = tail.data(),
                                             .positions = ws.positions.data() + run.first},
                                 .weight = w.conv,
                                 .bias = w.conv_bias},
                                x_bar + run.first * E, tails + i * depth * E, parallel);
    std::copy_n(tails + i * depth * E, depth * E, tail.data());
  });
  const int64_t width = R + 2 * N;
  const float* dbc = map(c, w.x, {x_bar, E}, c.T, ws.dbc);
  const float* dt = map(c, w.dt, {dbc, width}, c.T, ws.dt);
  float* read = room(ws.read, c.T * E);
  for_runs(c, [&](const Run& run, int64_t, const kernels::ParallelFor& parallel) {
    float* h = state_of(run, layer).ssm.data();
    kernels::selective_scan({.B = 1,
                             .L = run.count(),
                             .E = E,
                             .N = N,
                             .x = {x_bar + run.first * E, E},
                             .dt = {dt + run.first * E, E},
                             .z = {ws.xzq.data() + run.first * stride + E, stride},
                             .input = {dbc + run.first * width + R, width},
                             .output = {dbc + run.first * width + R + N, width},
                             .A = w.A,
                             .D = w.skip,
                             .dt_bias = w.dt_bias,
                             .h0 = h,
                             .states_first = true},
                            read + run.first * E, h, nullptr, parallel);
  });
  float* y = map(c, w.out, {read, E}, c.T, ws.y);
  add_bias(y, c.T, config.hidden_size, w.out_bias, config.hidden_size);
}

// Innovation Selection: ε of the run's tokens, and what the running set keeps of them.
void select(const Call& c, const MemoryShape& shape) {
  const auto& config = c.weights.config;
  auto& ws = c.ws;
  const int64_t D = config.hidden_size, k = config.predictor_taps;
  float* epsilon = room(ws.innovation, c.T);
  float* tails = room(ws.outputs, std::ssize(c.runs) * k * D);
  if (ws.selection.size() < c.runs.size()) ws.selection.resize(c.runs.size());
  for_runs(c, [&](const Run& run, int64_t i, const kernels::ParallelFor& parallel) {
    auto& state = state_of(run, shape.layer);
    kernels::innovation({.history = {.B = 1,
                                     .L = run.count(),
                                     .C = D,
                                     .depth = k,
                                     .x = {ws.y.data() + run.first * D, D},
                                     .tail = state.outputs.data(),
                                     .positions = ws.positions.data() + run.first},
                         .c = c.predictor.data()},
                        epsilon + run.first, tails + i * k * D, parallel);
    std::copy_n(tails + i * k * D, k * D, state.outputs.data());
    remember_eidetic(shape, state, run.position,
                     {epsilon + run.first, static_cast<size_t>(run.count())}, run.ids, run.wanted,
                     ws.selection[static_cast<size_t>(i)]);
  });
}

void rotate(const Call& c, int64_t T, int64_t heads, View x, const float* cos, const float* sin,
            float* out) {
  kernels::rotate(
      {.T = T, .H = heads, .half = c.weights.config.head_size / 2, .x = x, .cos = cos, .sin = sin},
      out, c.parallel);
}

// The keys of rows [n, 2, G, d], turned to their own positions.
void rotate_keys(const Call& c, int64_t n, float* rows, const float* cos, const float* sin) {
  const auto& config = c.weights.config;
  const int64_t keys = config.num_kv_heads * config.head_size;
  float* turned = room(c.ws.k, n * keys);
  rotate(c, n, config.num_kv_heads, {rows, 2 * keys}, cos, sin, turned);
  for (int64_t t = 0; t < n; ++t) std::copy_n(turned + t * keys, keys, rows + t * 2 * keys);
}

// k_f, v_f = W_k n(y), W_v n(y), only where a chunk or a window will read them.
void fade(const Call& c, const PackedLayer& w, const MemoryShape& shape) {
  auto& ws = c.ws;
  const int64_t D = c.weights.config.hidden_size, half = c.weights.config.head_size / 2;
  const bool turns = !c.frequencies.empty();
  int64_t n = 0;
  for (int64_t t = 0; t < c.T; ++t) n += shape.fading.projects(ws.positions[t]);
  float* y = room(ws.faded, n * D);
  float *cos = room(ws.faded_cos, n * half), *sin = room(ws.faded_sin, n * half);
  n = 0;
  for (int64_t t = 0; t < c.T; ++t) {
    if (!shape.fading.projects(ws.positions[t])) continue;
    std::copy_n(ws.y.data() + t * D, D, y + n * D);
    if (turns) {
      std::copy_n(ws.cos.data() + t * half, half, cos + n * half);
      std::copy_n(ws.sin.data() + t * half, half, sin + n * half);
    }
    ++n;
  }
  if (n == 0) return;
  rms_norm(c, {y, D}, n, w.fading_norm, y);
  float* rows = map(c, w.fading_kv, {y, D}, n, ws.faded_kv);
  if (turns) rotate_keys(c, n, rows, cos, sin);
  n = 0;
  for (const auto& run : c.runs)
    for (int64_t t = 0; t < run.count(); ++t)
      if (shape.fading.projects(run.position + t))
        remember_fading(shape, state_of(run, shape.layer), run.position + t,
                        rows + n++ * shape.row);
}

// A run of several tokens: the rows it sees are laid side by side.
void attend_run(const Call& c, const MemoryShape& shape, const Run& run, const OldKeys& old,
                const float* q, const float* bias, float* out) {
  const auto& config = c.weights.config;
  auto& ws = c.ws;
  int64_t S = run.count();
  for (int i = 0; i < old.num_runs; ++i) S += old.runs[static_cast<size_t>(i)].count;
  float* pool = room(ws.pool, S * shape.row);
  int64_t *index = room(ws.index, S), *from = room(ws.from, S), *until = room(ws.until, S);
  const auto& members = state_of(run, shape.layer).frozen.position;
  int64_t n = 0;
  const auto put = [&](const KeyRun& keys) {
    std::copy_n(keys.first, keys.count * shape.row, pool + n * shape.row);
    for (int64_t j = 0; j < keys.count; ++j, ++n) {
      const int64_t p = keys.position + j;
      memory::SeenBy seen = shape.window.seen_by(p);
      if (keys.memory == KeyRun::fading) seen = shape.fading.seen_by(p, run.position);
      if (keys.memory == KeyRun::eidetic)
        seen = {memory::EideticMemory{shape.window.w}.seen_from(members[static_cast<size_t>(j)]),
                memory::kUnlimited};
      const int64_t begin = seen.from - run.position;
      index[n] = n;
      from[n] = std::max<int64_t>(0, begin);
      // Written so that an unlimited window does not overflow.
      until[n] = seen.count < run.count() - begin ? begin + seen.count : run.count();
    }
  };
  for (int i = 0; i < old.num_runs; ++i) put(old.runs[static_cast<size_t>(i)]);
  put({KeyRun::window, ws.kv.data() + run.first * shape.row, run.count(), run.position});
  const int64_t width = config.num_heads * config.head_size;
  const kernels::QueryRun queries{0, run.count()};
  kernels::memory_attention({.num_pieces = 1,
                             .num_keys = S,
                             .num_heads = config.num_heads,
                             .num_kv_heads = config.num_kv_heads,
                             .head = config.head_size,
                             .pieces = &queries,
                             .q = q + run.first * width,
                             .q_stride = width,
                             .pool = pool,
                             .index = index,
                             .from = from,
                             .until = until,
                             .bias = bias,
                             .num_biased = bias != nullptr ? old.num_eidetic : 0},
                            out + run.first * width, nullptr, c.parallel);
}

// One softmax over [eidetic | fading | window].
void attend_all(const Call& c, const PackedLayer& w, const MemoryShape& shape, const float* q,
                float* out) {
  const auto& config = c.weights.config;
  auto& ws = c.ws;
  const int64_t width = config.num_heads * config.head_size;
  float* biases = room(ws.bias, std::ssize(c.runs) * shape.eidetic);
  ws.steps.clear();
  for (size_t i = 0; i < c.runs.size(); ++i) {
    const auto& run = c.runs[i];
    const auto& state = state_of(run, shape.layer);
    const auto old = old_keys(shape, state, run.position, run.count());
    float* bias = nullptr;
    if (w.beta && old.num_eidetic > 0) {
      bias = biases + static_cast<int64_t>(i) * shape.eidetic;
      kernels::eidetic_bias({.m = std::ssize(state.frozen.innovation),
                             .innovation = state.frozen.innovation.data(),
                             .beta = *w.beta},
                            bias, kernels::serial_for);
    }
    if (run.count() > 1) {
      attend_run(c, shape, run, old, q, bias, out);
      continue;
    }
    kernels::AttentionStep step;
    step.q = q + run.first * width;
    step.bias = bias;
    step.num_biased = bias != nullptr ? old.num_eidetic : 0;
    step.out = out + run.first * width;
    for (int j = 0; j < old.num_runs; ++j)
      step.runs[j] = {old.runs[static_cast<size_t>(j)].first,
                      old.runs[static_cast<size_t>(j)].count};
    step.runs[old.num_runs] = {ws.kv.data() + run.first * shape.row, 1};
    ws.steps.push_back(step);
  }
  if (!ws.steps.empty())
    kernels::memory_attention_steps({config.num_heads, config.num_kv_heads, config.head_size},
                                    ws.steps, c.parallel);
}

// ws.change = W_o Attn(q; memories), and the memories go on.
void attend(const Call& c, const PackedLayer& w, int64_t layer) {
  const auto& config = c.weights.config;
  auto& ws = c.ws;
  const MemoryShape shape(config, layer);
  const int64_t width = config.num_heads * config.head_size, before = w.xzq.N - width;
  for (const auto& run : c.runs) begin_piece(shape, state_of(run, layer), run.position);
  float* q = room(ws.q, c.T * width);
  if (c.frequencies.empty()) {
    for (int64_t t = 0; t < c.T; ++t)
      std::copy_n(ws.xzq.data() + t * w.xzq.N + before, width, q + t * width);
  } else {
    rotate(c, c.T, config.num_heads, {ws.xzq.data() + before, w.xzq.N}, ws.cos.data(),
           ws.sin.data(), q);
    rotate_keys(c, c.T, ws.kv.data(), ws.cos.data(), ws.sin.data());
  }
  float* mixed = room(ws.mixed, c.T * width);
  attend_all(c, w, shape, q, mixed);
  if (c.observer != nullptr && c.observer->asks_attention()) tell_attention(c, w, shape, q);
  map(c, w.o, {mixed, width}, c.T, ws.change);
  for (const auto& run : c.runs)
    remember_window(shape, state_of(run, layer), run.position, run.count(),
                    ws.kv.data() + run.first * shape.row);
  if (shape.fading.m_f > 0) fade(c, w, shape);
  if (shape.eidetic > 0) select(c, shape);
  if (c.observer != nullptr) tell_pieces(c, shape);
}

}  // namespace

void begin_call(const Call& c) {
  auto& ws = c.ws;
  int64_t* positions = room(ws.positions, c.T);
  for (const auto& run : c.runs)
    for (int64_t t = 0; t < run.count(); ++t) positions[run.first + t] = run.position + t;
  if (c.frequencies.empty()) return;
  const int64_t half = std::ssize(c.frequencies);
  kernels::rotary_table(
      {.T = c.T, .half = half, .position = positions, .frequency = c.frequencies.data()},
      room(ws.cos, c.T * half), room(ws.sin, c.T * half), c.parallel);
}

void forward_layer(const Call& c, int64_t i) {
  const auto& config = c.weights.config;
  const auto& w = c.weights.layers[static_cast<size_t>(i)];
  auto& ws = c.ws;
  const int64_t D = config.hidden_size, F = config.mlp_size;
  float *x = ws.x.data(), *u = room(ws.u, c.T * D), *change = room(ws.change, c.T * D);
  rms_norm(c, {x, D}, c.T, w.norm, u);
  float* xzq = map(c, w.xzq, {u, D}, c.T, ws.xzq);
  add_bias(xzq, c.T, w.xzq.N, w.in_bias, 2 * config.ssm_inner_size);
  if (w.kind != model::LayerKind::attention) ssm(c, w, i);
  if (w.kind == model::LayerKind::ssm) {
    change = ws.y.data();
  } else {
    map(c, w.kv, {u, D}, c.T, ws.kv);
    attend(c, w, i);
    if (w.kind == model::LayerKind::bmojo && config.fading_residual)
      add(change, ws.y.data(), c.T * D);
  }
  if (F == 0) return add(x, change, c.T * D);
  kernels::rms_norm({.R = c.T,
                     .D = D,
                     .x = {x, D},
                     .y = {change, D},
                     .gain = w.mlp_norm,
                     .eps = static_cast<float>(config.norm_eps)},
                    x, u, nullptr, c.parallel);
  const float* both = map(c, w.gate_up, {u, D}, c.T, ws.both);
  float* gated = room(ws.gated, c.T * F);
  kernels::swiglu({.R = c.T, .F = F, .gate = {both, 2 * F}, .up = {both + F, 2 * F}}, gated,
                  c.parallel);
  add(x, map(c, w.down, {gated, F}, c.T, ws.change), c.T * D);
}

}  // namespace bmojo::infer
