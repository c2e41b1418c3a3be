#include "bmojo/kernels/eidetic_bias.h"

#include <vector>

#include "bmojo/kernels/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bmojo/kernels/eidetic_bias.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "bmojo/kernels/row-inl.h"

// A task is a set.

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {

constexpr float kLeastInnovation = 1e-6f;

// The mean over the members of set p, serially.
HWY_INLINE float mean_of(const EideticBias& in, int64_t p, const float* x) {
  const bool* there = in.there ? in.there + p * in.m : nullptr;
  float sum = 0;
  int64_t count = 0;
  for (int64_t j = 0; j < in.m; ++j)
    if (!there || there[j]) {
      sum += x[j];
      ++count;
    }
  return count > 0 ? sum / static_cast<float>(count) : 0;
}

// l - mean of set p; anything in empty places.
HWY_INLINE void center_logs(const EideticBias& in, int64_t p, float* out) {
  const float* HWY_RESTRICT innovation = in.innovation + p * in.m;
  over_row(in.m, [&](int64_t j, int64_t count) BMOJO_BODY {
    store(log(hn::Add(load(innovation + j, count), all(kLeastInnovation))), out + j, count);
  });
  const float mean = mean_of(in, p, out);
  for (int64_t j = 0; j < in.m; ++j) out[j] -= mean;
}

HWY_INLINE bool is_there(const EideticBias& in, int64_t p, int64_t j) {
  return !in.there || in.there[p * in.m + j];
}

void bias_forward(const EideticBias& in, float* bias, const ParallelFor& parallel) {
  run(parallel, in.P, [&](int64_t p) HWY_ATTR {
    float* to = bias + p * in.m;
    center_logs(in, p, to);
    for (int64_t j = 0; j < in.m; ++j) to[j] = is_there(in, p, j) ? in.beta * to[j] : 0;
  });
}

// With g the gradient to bias: to ε_j it is β (g_j - mean g) / (ε_j + 1e-6), to β Σ g_j (l_j -
// mean).
void bias_backward(const EideticBias& in, const float* grad_bias, float* grad_innovation,
                   float* grad_beta, const ParallelFor& parallel) {
  run(parallel, in.P, [&](int64_t p) HWY_ATTR {
    const float *g = grad_bias + p * in.m, *innovation = in.innovation + p * in.m;
    float* to = grad_innovation + p * in.m;
    center_logs(in, p, to);
    float to_beta = 0;
    for (int64_t j = 0; j < in.m; ++j)
      if (is_there(in, p, j)) to_beta += g[j] * to[j];
    grad_beta[p] = to_beta;
    const float mean = mean_of(in, p, g);
    for (int64_t j = 0; j < in.m; ++j)
      to[j] = is_there(in, p, j) ? in.beta * (g[j] - mean) / (innovation[j] + kLeastInnovation) : 0;
  });
}

}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bmojo::kernels {

HWY_EXPORT(bias_forward);
HWY_EXPORT(bias_backward);

void eidetic_bias(const EideticBias& in, float* bias, const ParallelFor& parallel) {
  HWY_DYNAMIC_DISPATCH(bias_forward)(in, bias, parallel);
}

void eidetic_bias_backward(const EideticBias& in, const float* grad_bias, float* grad_innovation,
                           float* grad_beta, const ParallelFor& parallel) {
  HWY_DYNAMIC_DISPATCH(bias_backward)(in, grad_bias, grad_innovation, grad_beta, parallel);
}

}  // namespace bmojo::kernels
#endif
