#include "bmojo/kernels/innovation.h"

#include <algorithm>
#include <vector>

#include "bmojo/kernels/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bmojo/kernels/innovation.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "bmojo/kernels/history-inl.h"

// Forward, a task owns a run of tokens, so that the rows they share are still in the cache;
// backward, a row and some channels.

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {

HWY_INLINE V prediction_error(const Reads& reads, const float* HWY_RESTRICT c, int64_t channel,
                              int64_t lanes) {
  V error = load(reads.row(0) + channel, lanes);
  for (int64_t i = 1; i < reads.count; ++i)
    error = hn::NegMulAdd(all(c[i - 1]), load(reads.row(i) + channel, lanes), error);
  return error;
}

void forward(const Innovation& in, float* eps, float* next_tail, const ParallelFor& parallel) {
  const History& h = in.history;
  const int64_t blocks = (h.L + kHistoryBlock - 1) / kHistoryBlock;
  run(parallel, h.B * blocks, [&](int64_t task) HWY_ATTR {
    const int64_t b = task / blocks, t0 = task % blocks * kHistoryBlock,
                  t1 = std::min(h.L, t0 + kHistoryBlock);
    if (t0 == 0) h.copy_tail(b, next_tail);
    Reads reads(h);
    for (int64_t t = t0; t < t1; ++t) {
      float& out = eps[b * h.L + t];
      out = 0;
      if (t >= h.length(b)) continue;
      reads.at(h, b, t);
      const float sum = sum_over_row(h.C, [&](int64_t i, int64_t lanes, V squares) BMOJO_BODY {
        const V error = prediction_error(reads, in.c, i, lanes);
        return hn::MulAdd(error, error, squares);
      });
      out = square_root(sum / static_cast<float>(h.C));
    }
  });
}

void backward(const Innovation& in, const float* eps, const float* grad_eps, const float* grad_next,
              float* grad_y, float* grad_tail, const ParallelFor& parallel) {
  const History& h = in.history;
  const int64_t groups = (h.C + kHistoryGroup - 1) / kHistoryGroup;
  std::vector<float> weights = {1};
  for (int64_t i = 0; i < h.depth; ++i) weights.push_back(-in.c[i]);
  run(parallel, h.B * groups, [&](int64_t task) HWY_ATTR {
    const int64_t b = task / groups, first = task % groups * kHistoryGroup,
                  count = std::min(kHistoryGroup, h.C - first);
    Reads reads(h);
    // d eps / d e = e / (D eps)
    const auto fill = [&](int64_t t, float* HWY_RESTRICT d) HWY_ATTR {
      const float value = eps[b * h.L + t];
      const float slope =
          value == 0 ? 0 : grad_eps[b * h.L + t] / (static_cast<float>(h.C) * value);
      reads.at(h, b, t);
      over_row(count, [&](int64_t i, int64_t lanes) BMOJO_BODY {
        const V error = prediction_error(reads, in.c, first + i, lanes);
        store(value == 0 ? zero() : hn::Mul(error, all(slope)), d + i);
      });
    };
    back_through(h, b, first, count, grad_next, grad_y, grad_tail, fill,
                 [&](int64_t i, int64_t, int64_t)
                     BMOJO_BODY { return all(weights[static_cast<size_t>(i)]); });
  });
}

}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bmojo::kernels {

HWY_EXPORT(forward);
HWY_EXPORT(backward);

void innovation(const Innovation& in, float* eps, float* next_tail, const ParallelFor& parallel) {
  HWY_DYNAMIC_DISPATCH(forward)(in, eps, next_tail, parallel);
}

void innovation_backward(const Innovation& in, const float* eps, const float* grad_eps,
                         const float* grad_next, float* grad_y, float* grad_tail,
                         const ParallelFor& parallel) {
  HWY_DYNAMIC_DISPATCH(backward)(in, eps, grad_eps, grad_next, grad_y, grad_tail, parallel);
}

}  // namespace bmojo::kernels
#endif
