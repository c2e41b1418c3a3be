#include "bmojo/kernels/causal_conv.h"

#include <algorithm>
#include <vector>

#include "bmojo/kernels/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bmojo/kernels/causal_conv.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "bmojo/kernels/history-inl.h"

// Vectors run over channels. Forward, a task owns a run of tokens with all their channels;
// backward, a row and some channels, since the gradient to a tap is a sum over time.

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {

// taps[i] [E] is the tap for x_{t-i}; behind them, the bias or zeros.
Scratch by_tap(const CausalConv& conv) {
  const int64_t E = conv.history.C, K = conv.history.depth + 1;
  auto taps = scratch((K + 1) * E);
  for (int64_t i = 0; i < K; ++i)
    for (int64_t c = 0; c < E; ++c)
      taps[static_cast<size_t>(i * E + c)] = conv.weight[c * K + K - 1 - i];
  float* bias = taps.get() + K * E;
  std::fill_n(bias, E, 0.0f);
  if (conv.bias != nullptr) std::copy_n(conv.bias, E, bias);
  return taps;
}

HWY_INLINE V convolve(const Reads& reads, const float* HWY_RESTRICT taps, V bias, int64_t E,
                      int64_t c, int64_t lanes) {
  V sum = bias;
  for (int64_t i = 0; i < reads.count; ++i)
    sum = hn::MulAdd(load(taps + i * E + c, lanes), load(reads.row(i) + c, lanes), sum);
  return sum;
}

void forward(const CausalConv& conv, float* y, float* next_tail, const ParallelFor& parallel) {
  const History& h = conv.history;
  const int64_t E = h.C, blocks = (h.L + kHistoryBlock - 1) / kHistoryBlock;
  const auto taps = by_tap(conv);
  const float* bias = taps.get() + (h.depth + 1) * E;
  run(parallel, h.B * blocks, [&](int64_t task) HWY_ATTR {
    const int64_t b = task / blocks, t0 = task % blocks * kHistoryBlock,
                  t1 = std::min(h.L, t0 + kHistoryBlock),
                  end = std::max(t0, std::min(t1, h.length(b)));
    if (t0 == 0) h.copy_tail(b, next_tail);
    Reads reads(h);
    for (int64_t t = t0; t < end; ++t) {
      reads.at(h, b, t);
      float* HWY_RESTRICT out = y + (b * h.L + t) * E;
      over_row(E, [&](int64_t c, int64_t lanes) BMOJO_BODY {
        const V sum = convolve(reads, taps.get(), load(bias + c, lanes), E, c, lanes);
        store(silu(sum), out + c, lanes);
      });
    }
    std::fill(y + (b * h.L + end) * E, y + (b * h.L + t1) * E, 0.0f);
  });
}

// Gradients to the taps and the bias, [K + 1, kHistoryGroup]: of a block of tokens, and of those
// behind it.
struct TapGradients {
  explicit TapGradients(int64_t K)
      : size(static_cast<size_t>((K + 1) * kHistoryGroup)),
        part(scratch(static_cast<int64_t>(size))),
        total(scratch(static_cast<int64_t>(size))) {
    std::fill_n(part.get(), size, 0.0f);
    std::fill_n(total.get(), size, 0.0f);
  }
  void end_block() {
    for (size_t i = 0; i < size; ++i) total[i] += part[i];
    std::fill_n(part.get(), size, 0.0f);
  }
  size_t size;
  Scratch part, total;
};

// One row and the channels [first, first + count).
void backward_group(const CausalConv& conv, const float* taps, int64_t b, int64_t first,
                    int64_t count, const View& grad_y, const float* grad_next,
                    const CausalConvGradients& out) {
  const History& h = conv.history;
  const int64_t E = h.C, K = h.depth + 1;
  const float* bias = taps + K * E + first;
  TapGradients grad(K);
  Reads reads(h);
  const auto fill = [&](int64_t t, float* HWY_RESTRICT d) HWY_ATTR {
    reads.at(h, b, t);
    const float* HWY_RESTRICT from = grad_y.data + (b * h.L + t) * grad_y.stride + first;
    if (t >= kHistoryAhead) prefetch(from - kHistoryAhead * grad_y.stride, count);
    over_row(count, [&](int64_t c, int64_t lanes) BMOJO_BODY {
      const V sum = convolve(reads, taps, load(bias + c, lanes), E, first + c, lanes);
      const V to_sum = hn::Mul(load(from + c, lanes), silu_slope(sum, sigmoid(sum)));
      store(to_sum, d + c);
      for (int64_t i = 0; i < reads.count; ++i) {
        float* to_tap = grad.part.get() + i * kHistoryGroup + c;
        store(hn::MulAdd(to_sum, load(reads.row(i) + first + c, lanes), load(to_tap)), to_tap);
      }
      float* to_bias = grad.part.get() + K * kHistoryGroup + c;
      store(hn::Add(load(to_bias), to_sum), to_bias);
    });
    if (t % kHistoryBlock == 0) grad.end_block();
  };
  back_through(h, b, first, count, grad_next, out.x, out.tail, fill,
               [&](int64_t i, int64_t c, int64_t lanes)
                   BMOJO_BODY { return load(taps + i * E + first + c, lanes); });
  for (int64_t c = 0; c < count; ++c) {
    const int64_t channel = b * E + first + c;
    for (int64_t i = 0; i < K; ++i)
      out.weight[channel * K + K - 1 - i] = grad.total[static_cast<size_t>(i * kHistoryGroup + c)];
    out.bias[channel] = grad.total[static_cast<size_t>(K * kHistoryGroup + c)];
  }
}

void backward(const CausalConv& conv, const View& grad_y, const float* grad_next,
              const CausalConvGradients& out, const ParallelFor& parallel) {
  const int64_t E = conv.history.C, groups = (E + kHistoryGroup - 1) / kHistoryGroup;
  const auto taps = by_tap(conv);
  run(parallel, conv.history.B * groups, [&](int64_t task) HWY_ATTR {
    const int64_t first = task % groups * kHistoryGroup;
    backward_group(conv, taps.get(), task / groups, first, std::min(kHistoryGroup, E - first),
                   grad_y, grad_next, out);
  });
}

}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bmojo::kernels {

HWY_EXPORT(forward);
HWY_EXPORT(backward);

void causal_conv1d_silu(const CausalConv& conv, float* y, float* next_tail,
                        const ParallelFor& parallel) {
  HWY_DYNAMIC_DISPATCH(forward)(conv, y, next_tail, parallel);
}

void causal_conv1d_silu_backward(const CausalConv& conv, View grad_y, const float* grad_next,
                                 const CausalConvGradients& out, const ParallelFor& parallel) {
  HWY_DYNAMIC_DISPATCH(backward)(conv, grad_y, grad_next, out, parallel);
}

}  // namespace bmojo::kernels
#endif
