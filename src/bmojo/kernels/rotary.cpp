#include "bmojo/kernels/rotary.h"

#include <algorithm>

#include "bmojo/kernels/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bmojo/kernels/rotary.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "bmojo/kernels/row-inl.h"

// The heads of a token share its angles. A task is as many tokens as make its overhead small.

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {

template <bool kBack>
HWY_INLINE void turn(const Rotary& in, int64_t t, float* HWY_RESTRICT y) {
  const float *HWY_RESTRICT cos = in.cos + t * in.half, *HWY_RESTRICT sin = in.sin + t * in.half;
  for (int64_t head = 0; head < in.H; ++head) {
    const float* HWY_RESTRICT from = in.x.data + t * in.x.stride + head * 2 * in.half;
    float* HWY_RESTRICT to = y + (t * in.H + head) * 2 * in.half;
    over_row(in.half, [&](int64_t i, int64_t count) BMOJO_BODY {
      const V a = load(from + i, count), b = load(from + in.half + i, count);
      const V c = load(cos + i, count), s = load(sin + i, count);
      const V b_s = hn::Mul(b, s), a_s = hn::Mul(a, s);
      store(kBack ? hn::MulAdd(a, c, b_s) : hn::MulSub(a, c, b_s), to + i, count);
      store(kBack ? hn::MulSub(b, c, a_s) : hn::MulAdd(b, c, a_s), to + in.half + i, count);
    });
  }
}

void forward(const Rotary& in, float* y, const ParallelFor& parallel) {
  constexpr int64_t kTask = 16384;
  const int64_t tokens = std::max<int64_t>(1, kTask / (in.H * 2 * in.half));
  run(parallel, (in.T + tokens - 1) / tokens, [&](int64_t task) HWY_ATTR {
    const int64_t end = std::min(in.T, (task + 1) * tokens);
    for (int64_t t = task * tokens; t < end; ++t)
      in.back ? turn<true>(in, t, y) : turn<false>(in, t, y);
  });
}

}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bmojo::kernels {

HWY_EXPORT(forward);

void rotate(const Rotary& in, float* y, const ParallelFor& parallel) {
  HWY_DYNAMIC_DISPATCH(forward)(in, y, parallel);
}

}  // namespace bmojo::kernels
#endif
