#include "bmojo/kernels/selective_scan.h"

#include <algorithm>
#include <array>
#include <vector>

#include "bmojo/kernels/cpu.h"
#include "bmojo/kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bmojo/kernels/selective_scan.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "bmojo/kernels/row-inl.h"

// Vectors run over channels, the N states of a channel lie in memory one vector each, and time is
// serial. A task owns one sequence and kGroup channels; it walks time in blocks, and in a block the
// group's channels vector by vector, so that a row of x is read a few whole cache lines at a time.

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {

inline constexpr int64_t kGroup = 64;

// What a task knows of its sequence and channels.
struct Group {
  const Scan& scan;
  int64_t sequence, first, count, length;  // channels [first, first + count), tokens [0, length)
  Scratch decay_rate;                      // A log2(e), [vectors, N, kLanes]

  int64_t vectors() const { return (count + kLanes - 1) / kLanes; }
  int64_t channel(int64_t v) const { return first + v * kLanes; }
  int64_t lanes(int64_t v) const { return std::min(kLanes, count - v * kLanes); }
  int64_t token(int64_t t) const { return sequence * scan.L + t; }
  const float* at(const View& x, int64_t t) const { return x.data + token(t) * x.stride; }
  bool starts(int64_t t) const { return scan.starts != nullptr && scan.starts[token(t)] != 0; }
};

int64_t num_tasks(const Scan& scan) { return scan.B * ((scan.E + kGroup - 1) / kGroup); }

// The group's part of the dense `from` [B, E, N], or [B, N, E], as [vectors, N, kLanes], and back.
// N first is a copy, vector by vector: for one token the other way takes longer than the scan.
void to_lanes(const Group& g, const float* from, int64_t sequence, float scale, float* to) {
  const auto [E, N] = std::array{g.scan.E, g.scan.N};
  if (g.scan.states_first) {
    for (int64_t v = 0; v < g.vectors(); ++v)
      for (int64_t n = 0; n < N; ++n)
        hn::Store(
            hn::Mul(load(from + (sequence * N + n) * E + g.channel(v), g.lanes(v)), all(scale)),
            Floats(), to + (v * N + n) * kLanes);
    return;
  }
  std::fill(to, to + g.vectors() * N * kLanes, 0.0f);
  for (int64_t c = 0; c < g.count; ++c)
    for (int64_t n = 0; n < N; ++n)
      to[(c / kLanes * N + n) * kLanes + c % kLanes] =
          from[(sequence * E + g.first + c) * N + n] * scale;
}
void from_lanes(const Group& g, const float* from, float* to) {
  const auto [E, N] = std::array{g.scan.E, g.scan.N};
  if (g.scan.states_first) {
    for (int64_t v = 0; v < g.vectors(); ++v)
      for (int64_t n = 0; n < N; ++n)
        store(load(from + (v * N + n) * kLanes), to + (g.sequence * N + n) * E + g.channel(v),
              g.lanes(v));
    return;
  }
  for (int64_t c = 0; c < g.count; ++c)
    for (int64_t n = 0; n < N; ++n)
      to[(g.sequence * E + g.first + c) * N + n] = from[(c / kLanes * N + n) * kLanes + c % kLanes];
}

Group make_group(const Scan& scan, int64_t task) {
  const int64_t groups = num_tasks(scan) / scan.B, sequence = task / groups,
                first = task % groups * kGroup;
  Group g{scan,
          sequence,
          first,
          std::min(kGroup, scan.E - first),
          scan.lengths != nullptr ? scan.lengths[sequence] : scan.L,
          {}};
  g.decay_rate = scratch(g.vectors() * scan.N * kLanes);
  to_lanes(g, scan.A, 0, kLog2E, g.decay_rate.get());
  return g;
}

// Per token and lane, [kScanBlock, kLanes]: what is the same for all states of a channel. It is
// made and used in passes of its own, where one token need not wait for another.
using PerToken = Scratch;
PerToken per_token() { return scratch(kScanBlock * kLanes); }

// Δ of tokens [t0, t1).
HWY_INLINE void deltas(const Group& g, int64_t v, int64_t t0, int64_t t1, float* HWY_RESTRICT to) {
  const int64_t c = g.channel(v), lanes = g.lanes(v);
  const V bias = load(g.scan.dt_bias + c, lanes);
  for (int64_t t = t0; t < t1; ++t)
    hn::Store(softplus(hn::Add(load(g.at(g.scan.dt, t) + c, lanes), bias)), Floats(),
              to + (t - t0) * kLanes);
}

// One vector of channels through tokens [t0, t1). `h` [N, kLanes] goes from state to state; `sums`
// receives C·h + D x. With Keep, decays [T, N, kLanes] and states [T, N, kLanes] are kept for the
// backward pass. `streams`: what the next block reads and writes, `ahead` tokens from here.
template <bool Keep, typename Arrays>
HWY_INLINE void steps(const Group& g, int64_t v, int64_t t0, int64_t t1,
                      const float* HWY_RESTRICT delta_of, float* HWY_RESTRICT h,
                      float* HWY_RESTRICT decays, float* HWY_RESTRICT states,
                      float* HWY_RESTRICT sums, const Arrays& streams, int64_t ahead) {
  const Scan& s = g.scan;
  const int64_t N = s.N, c = g.channel(v), lanes = g.lanes(v);
  const float* HWY_RESTRICT rate = g.decay_rate.get() + v * N * kLanes;
  const V skip = load(s.D + c, lanes);
  for (int64_t t = t0; t < t1; ++t) {
    if (t + ahead >= 0 && t + ahead < g.length)
      for (const View& rows : streams) prefetch(g.at(rows, t + ahead) + c, lanes);
    const V x = load(g.at(s.x, t) + c, lanes);
    const V delta = hn::Load(Floats(), delta_of + (t - t0) * kLanes);
    const V delta_x = hn::Mul(delta, x);
    const float *in = g.at(s.input, t), *read = g.at(s.output, t);
    if (g.starts(t)) std::fill(h, h + N * kLanes, 0.0f);
    V sum = hn::Mul(skip, x);
    for (int64_t n = 0; n < N; ++n) {
      // exp(Δ A) is often so near 1 that its rounding would add up over a long text.
      const auto [power, rest] = exp2_parts(hn::Mul(delta, hn::Load(Floats(), rate + n * kLanes)));
      const V before = hn::Load(Floats(), h + n * kLanes);
      const V change = hn::MulAdd(hn::Mul(power, rest), before, hn::Mul(delta_x, all(in[n])));
      const V state = hn::MulAdd(power, before, change);
      hn::Store(state, Floats(), h + n * kLanes);
      if constexpr (Keep) {
        hn::Store(hn::MulAdd(power, rest, power), Floats(), decays + ((t - t0) * N + n) * kLanes);
        hn::Store(state, Floats(), states + ((t - t0) * N + n) * kLanes);
      }
      sum = hn::MulAdd(state, all(read[n]), sum);
    }
    hn::Store(sum, Floats(), sums + (t - t0) * kLanes);
  }
}

void forward(const Scan& s, float* y, float* h_last, float* block_states,
             const ParallelFor& parallel) {
  run(parallel, num_tasks(s), [&](int64_t task) HWY_ATTR {
    const Group g = make_group(s, task);
    const auto h = scratch(g.vectors() * s.N * kLanes);
    const auto delta = per_token(), sums = per_token();
    const std::array streams = {s.x, s.dt, s.z, View{y, s.E}};
    to_lanes(g, s.h0, g.sequence, 1, h.get());
    for (int64_t t0 = 0; t0 < g.length; t0 += kScanBlock) {
      const int64_t t1 = std::min(g.length, t0 + kScanBlock);
      for (int64_t v = 0; v < g.vectors(); ++v) {
        float* state = h.get() + v * s.N * kLanes;
        const int64_t c = g.channel(v), lanes = g.lanes(v);
        const int64_t block = g.sequence * scan_blocks(s.L) + t0 / kScanBlock;
        for (int64_t n = 0; block_states != nullptr && n < s.N; ++n)
          store(load(state + n * kLanes), block_states + (block * s.N + n) * s.E + c, lanes);
        deltas(g, v, t0, t1, delta.get());
        steps<false>(g, v, t0, t1, delta.get(), state, nullptr, nullptr, sums.get(), streams,
                     kScanBlock);
        for (int64_t t = t0; t < t1; ++t) {
          const V z = load(g.at(s.z, t) + c, lanes);
          const V sum = hn::Load(Floats(), sums.get() + (t - t0) * kLanes);
          store(hn::Mul(sum, hn::Mul(z, sigmoid(z))), y + g.token(t) * s.E + c, lanes);
        }
      }
    }
    from_lanes(g, h.get(), h_last);
    for (int64_t t = g.length; t < s.L; ++t)
      std::fill_n(y + g.token(t) * s.E + g.first, g.count, 0.0f);
  });
}

// What the backward pass of one task carries and fills.
struct Adjoint {
  Adjoint(const Scan& s, int64_t vectors)
      : h(scratch(s.N * kLanes)),
        grad_h(scratch(vectors * s.N * kLanes)),
        grad_A(scratch(vectors * s.N * kLanes)),
        grad_D(scratch(vectors * kLanes)),
        grad_bias(scratch(vectors * kLanes)),
        decays(scratch(kScanBlock * s.N * kLanes)),
        states(scratch((kScanBlock + 1) * s.N * kLanes)),
        grad_input(scratch(kScanBlock * s.N * kChains)),
        grad_output(scratch(kScanBlock * s.N * kChains)) {
    std::fill_n(grad_A.get(), vectors * s.N * kLanes, 0.0f);
    std::fill_n(grad_D.get(), vectors * kLanes, 0.0f);
    std::fill_n(grad_bias.get(), vectors * kLanes, 0.0f);
  }
  Scratch h, grad_h, grad_A, grad_D, grad_bias;
  Scratch decays;  // [T, N, kLanes]
  Scratch states;  // [1 + T, N, kLanes]: before the block, then after each token
  PerToken delta = per_token(), sum = per_token();  // sum: C·h + D x, then its gradient
  PerToken grad_delta = per_token(), grad_delta_x = per_token();
  // Sums over the group's channels, lane by lane until the block ends: [T, N, kChains].
  Scratch grad_input, grad_output;
};

// Back through the gate, y = sum ⊙ silu(z), and the skip.
void gate_back(const Group& g, Adjoint& a, int64_t v, int64_t t0, int64_t t1, const View& grad_y,
               const ScanGradients& out) {
  const Scan& s = g.scan;
  const int64_t c = g.channel(v), lanes = g.lanes(v);
  V grad_D = hn::Load(Floats(), a.grad_D.get() + v * kLanes);
  for (int64_t t = t1 - 1; t >= t0; --t) {
    float* sum = a.sum.get() + (t - t0) * kLanes;
    const V z = load(g.at(s.z, t) + c, lanes), gate = sigmoid(z);
    const V grad = load(g.at(grad_y, t) + c, lanes);
    store(hn::Mul(hn::Mul(grad, hn::Load(Floats(), sum)), silu_slope(z, gate)),
          out.z + g.token(t) * s.E + c, lanes);
    const V grad_sum = hn::Mul(grad, hn::Mul(z, gate));
    hn::Store(grad_sum, Floats(), sum);
    grad_D = hn::MulAdd(grad_sum, load(g.at(s.x, t) + c, lanes), grad_D);
  }
  hn::Store(grad_D, Floats(), a.grad_D.get() + v * kLanes);
}

// One vector of channels back through tokens [t0, t1), whose states are in `a`.
void steps_back(const Group& g, Adjoint& a, int64_t v, int64_t t0, int64_t t1) {
  const Scan& s = g.scan;
  const int64_t N = s.N, c = g.channel(v), lanes = g.lanes(v), chain = v * kLanes % kChains;
  const float* HWY_RESTRICT rate = g.decay_rate.get() + v * N * kLanes;
  const float *HWY_RESTRICT states = a.states.get(), *HWY_RESTRICT decays = a.decays.get();
  float* HWY_RESTRICT grad_h = a.grad_h.get() + v * N * kLanes;
  float* HWY_RESTRICT grad_A = a.grad_A.get() + v * N * kLanes;
  float* HWY_RESTRICT grad_input = a.grad_input.get() + chain;
  float* HWY_RESTRICT grad_output = a.grad_output.get() + chain;
  for (int64_t t = t1 - 1; t >= t0; --t) {
    const V grad_sum = hn::Load(Floats(), a.sum.get() + (t - t0) * kLanes);
    const V delta = hn::Load(Floats(), a.delta.get() + (t - t0) * kLanes);
    const V delta_x = hn::Mul(delta, load(g.at(s.x, t) + c, lanes));
    const float *in = g.at(s.input, t), *read = g.at(s.output, t);
    const bool starts = g.starts(t);
    V grad_delta = zero(), grad_delta_x = zero();
    const int64_t at = (t - t0) * N;
    for (int64_t n = 0; n < N; ++n) {
      const V after = hn::Load(Floats(), states + (at + N + n) * kLanes);
      const V decay = hn::Load(Floats(), decays + (at + n) * kLanes);
      const V g_h = hn::MulAdd(grad_sum, all(read[n]), hn::Load(Floats(), grad_h + n * kLanes));
      float* to_output = grad_output + (at + n) * kChains;
      float* to_input = grad_input + (at + n) * kChains;
      hn::Store(hn::MulAdd(grad_sum, after, hn::Load(Floats(), to_output)), Floats(), to_output);
      hn::Store(hn::MulAdd(g_h, delta_x, hn::Load(Floats(), to_input)), Floats(), to_input);
      grad_delta_x = hn::MulAdd(g_h, all(in[n]), grad_delta_x);
      if (starts) {
        hn::Store(zero(), Floats(), grad_h + n * kLanes);
        continue;
      }
      const V before = hn::Load(Floats(), states + (at + n) * kLanes);
      const V carried = hn::Mul(g_h, decay);
      const V through_decay = hn::Mul(carried, before);  // gradient to Δ A
      hn::Store(hn::MulAdd(through_decay, delta, hn::Load(Floats(), grad_A + n * kLanes)), Floats(),
                grad_A + n * kLanes);
      grad_delta = hn::MulAdd(through_decay, hn::Load(Floats(), rate + n * kLanes), grad_delta);
      hn::Store(carried, Floats(), grad_h + n * kLanes);
    }
    hn::Store(grad_delta, Floats(), a.grad_delta.get() + (t - t0) * kLanes);
    hn::Store(grad_delta_x, Floats(), a.grad_delta_x.get() + (t - t0) * kLanes);
  }
}

// Back through Δ = softplus(dt + bias) and Δ x.
void delta_back(const Group& g, Adjoint& a, int64_t v, int64_t t0, int64_t t1,
                const ScanGradients& out) {
  const Scan& s = g.scan;
  const int64_t c = g.channel(v), lanes = g.lanes(v);
  const V bias = load(s.dt_bias + c, lanes), skip = load(s.D + c, lanes);
  V grad_bias = hn::Load(Floats(), a.grad_bias.get() + v * kLanes);
  for (int64_t t = t1 - 1; t >= t0; --t) {
    const auto of = [&](const PerToken& array)
                        HWY_ATTR { return hn::Load(Floats(), array.get() + (t - t0) * kLanes); };
    const V grad_delta_x = of(a.grad_delta_x);
    store(hn::MulAdd(grad_delta_x, of(a.delta), hn::Mul(of(a.sum), skip)),
          out.x + g.token(t) * s.E + c, lanes);
    // The rates were A log2(e).
    const V grad_delta = hn::MulAdd(grad_delta_x, load(g.at(s.x, t) + c, lanes),
                                    hn::Mul(of(a.grad_delta), all(0.693147181f)));
    const V raw = hn::Add(load(g.at(s.dt, t) + c, lanes), bias);
    const V grad_raw =
        hn::Mul(grad_delta, hn::IfThenElse(hn::Gt(raw, all(20)), all(1), sigmoid(raw)));
    store(grad_raw, out.dt + g.token(t) * s.E + c, lanes);
    grad_bias = hn::Add(grad_bias, grad_raw);
  }
  hn::Store(grad_bias, Floats(), a.grad_bias.get() + v * kLanes);
}

void clear_padding(const Group& g, const ScanGradients& out, float* input, float* output) {
  const Scan& s = g.scan;
  for (int64_t t = g.length; t < s.L; ++t) {
    for (float* grad : {out.x, out.dt, out.z})
      std::fill_n(grad + g.token(t) * s.E + g.first, g.count, 0.0f);
    std::fill_n(input + g.token(t) * s.N, s.N, 0.0f);
    std::fill_n(output + g.token(t) * s.N, s.N, 0.0f);
  }
}

// input and output [B, L, N]: this group's share of the gradients to B and C.
void backward_group(const Group& g, const float* block_states, const View& grad_y,
                    const float* grad_h, const ScanGradients& out, float* input, float* output) {
  const Scan& s = g.scan;
  const int64_t N = s.N;
  Adjoint a(s, g.vectors());
  const std::array streams = {
      s.x, s.dt, s.z, grad_y, View{out.x, s.E}, View{out.dt, s.E}, View{out.z, s.E}};
  to_lanes(g, grad_h, g.sequence, 1, a.grad_h.get());
  for (int64_t block = (g.length - 1) / kScanBlock; block >= 0; --block) {
    const int64_t t0 = block * kScanBlock, t1 = std::min(g.length, t0 + kScanBlock);
    if (t1 <= t0) continue;
    std::fill_n(a.grad_input.get(), (t1 - t0) * N * kChains, 0.0f);
    std::fill_n(a.grad_output.get(), (t1 - t0) * N * kChains, 0.0f);
    for (int64_t v = 0; v < g.vectors(); ++v) {
      const float* from =
          block_states + (g.sequence * scan_blocks(s.L) + block) * N * s.E + g.channel(v);
      for (int64_t n = 0; n < N; ++n) {
        const V state = load(from + n * s.E, g.lanes(v));
        hn::Store(state, Floats(), a.h.get() + n * kLanes);
        hn::Store(state, Floats(), a.states.get() + n * kLanes);
      }
      deltas(g, v, t0, t1, a.delta.get());
      steps<true>(g, v, t0, t1, a.delta.get(), a.h.get(), a.decays.get(),
                  a.states.get() + N * kLanes, a.sum.get(), streams, -kScanBlock);
      gate_back(g, a, v, t0, t1, grad_y, out);
      steps_back(g, a, v, t0, t1);
      delta_back(g, a, v, t0, t1, out);
    }
    for (int64_t i = 0; i < (t1 - t0) * N; ++i) {
      input[g.token(t0) * N + i] = sum_of_chains(a.grad_input.get() + i * kChains);
      output[g.token(t0) * N + i] = sum_of_chains(a.grad_output.get() + i * kChains);
    }
  }
  clear_padding(g, out, input, output);
  from_lanes(g, a.grad_h.get(), out.h0);
  from_lanes(g, a.grad_A.get(), out.A);
  for (int64_t c = 0; c < g.count; ++c) {
    out.D[g.sequence * s.E + g.first + c] = a.grad_D[c];
    out.dt_bias[g.sequence * s.E + g.first + c] = a.grad_bias[c];
  }
}

void backward(const Scan& s, const float* block_states, const View& grad_y, const float* grad_h,
              const ScanGradients& out, const ParallelFor& parallel) {
  const int64_t groups = num_tasks(s) / s.B, shared = s.B * s.L * s.N;
  // The first group writes where the sum will stand, the others beside it.
  const auto others = scratch(2 * (groups - 1) * shared);
  const auto place = [&](float* first, int64_t group, int64_t which) {
    return group == 0 ? first : others.get() + (2 * (group - 1) + which) * shared;
  };
  run(parallel, num_tasks(s), [&](int64_t task) HWY_ATTR {
    const int64_t group = task % groups;
    backward_group(make_group(s, task), block_states, grad_y, grad_h, out,
                   place(out.input, group, 0), place(out.output, group, 1));
  });
  // Then every number is the sum over groups, in their order.
  const int64_t block = kScanBlock * s.N;
  run(parallel, (shared + block - 1) / block, [&](int64_t task) {
    const int64_t end = std::min(shared, (task + 1) * block);
    for (int64_t group = 1; group < groups; ++group)
      for (int64_t i = task * block; i < end; ++i) {
        out.input[i] += place(nullptr, group, 0)[i];
        out.output[i] += place(nullptr, group, 1)[i];
      }
  });
}

}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bmojo::kernels {

HWY_EXPORT(forward);
HWY_EXPORT(backward);

void selective_scan(const Scan& scan, float* y, float* h_last, float* block_states,
                    const ParallelFor& parallel) {
  HWY_DYNAMIC_DISPATCH(forward)(scan, y, h_last, block_states, parallel);
}

void selective_scan_backward(const Scan& scan, const float* block_states, View grad_y,
                             const float* grad_h, const ScanGradients& out,
                             const ParallelFor& parallel) {
  HWY_DYNAMIC_DISPATCH(backward)(scan, block_states, grad_y, grad_h, out, parallel);
}

}  // namespace bmojo::kernels
#endif
