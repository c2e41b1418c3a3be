#include "bmojo/kernels/swiglu.h"

#include <algorithm>

#include "bmojo/kernels/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bmojo/kernels/swiglu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "bmojo/kernels/row-inl.h"

// No element needs another: a task is as many rows as make its overhead small.

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {

template <typename Row>
void over_rows(const SwiGlu& in, const ParallelFor& parallel, const Row& row) {
  constexpr int64_t kTask = 8192;
  const int64_t rows = std::max<int64_t>(1, kTask / in.F);
  run(parallel, (in.R + rows - 1) / rows, [&](int64_t task) {
    const int64_t end = std::min(in.R, (task + 1) * rows);
    for (int64_t r = task * rows; r < end; ++r) row(r);
  });
}

void forward(const SwiGlu& in, float* y, const ParallelFor& parallel) {
  over_rows(in, parallel, [&](int64_t r) HWY_ATTR {
    const float* HWY_RESTRICT gate = in.gate.data + r * in.gate.stride;
    const float* HWY_RESTRICT up = in.up.data + r * in.up.stride;
    float* HWY_RESTRICT out = y + r * in.F;
    over_row(in.F, [&](int64_t i, int64_t count) BMOJO_BODY {
      store(hn::Mul(silu(load(gate + i, count)), load(up + i, count)), out + i, count);
    });
  });
}

void backward(const SwiGlu& in, const View& grad_y, float* grad_gate, float* grad_up,
              const ParallelFor& parallel) {
  over_rows(in, parallel, [&](int64_t r) HWY_ATTR {
    const float* HWY_RESTRICT gate = in.gate.data + r * in.gate.stride;
    const float* HWY_RESTRICT up = in.up.data + r * in.up.stride;
    const float* HWY_RESTRICT grad = grad_y.data + r * grad_y.stride;
    float* HWY_RESTRICT to_gate = grad_gate + r * in.F;
    float* HWY_RESTRICT to_up = grad_up + r * in.F;
    over_row(in.F, [&](int64_t i, int64_t count) BMOJO_BODY {
      const V x = load(gate + i, count), g = load(grad + i, count);
      const V open = sigmoid(x);
      store(hn::Mul(g, hn::Mul(x, open)), to_up + i, count);
      store(hn::Mul(hn::Mul(g, load(up + i, count)), silu_slope(x, open)), to_gate + i, count);
    });
  });
}

}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bmojo::kernels {

HWY_EXPORT(forward);
HWY_EXPORT(backward);

void swiglu(const SwiGlu& in, float* y, const ParallelFor& parallel) {
  HWY_DYNAMIC_DISPATCH(forward)(in, y, parallel);
}

void swiglu_backward(const SwiGlu& in, View grad_y, float* grad_gate, float* grad_up,
                     const ParallelFor& parallel) {
  HWY_DYNAMIC_DISPATCH(backward)(in, grad_y, grad_gate, grad_up, parallel);
}

}  // namespace bmojo::kernels
#endif
