#pragma once

#include <cstdint>

#include "bmojo/kernels/parallel.h"
#include "bmojo/kernels/view.h"

// Shapes: R rows of D numbers. All arrays are float and dense but for `View`.

namespace bmojo::kernels {

// The RMS norm of rows, and of the sum of two:
//   s_r    = x_r + y_r                      [D]; x_r where there is no y
//   norm_r = gain ⊙ s_r / √(mean(s_r²) + eps)
struct Norm {
  int64_t R = 0, D = 0;
  View x;                       // [R, D]
  View y = {};                  // [R, D], or none
  const float* gain = nullptr;  // [D]
  float eps = 0;
};

// sum [R, D], or null without y; norm [R, D]; scale [R], 1 / √(…), or null: no backward will
// follow.
void rms_norm(const Norm& in, float* sum, float* norm, float* scale, const ParallelFor& parallel);

// Of a loss whose gradient to norm is grad_norm [R, D] and to the sum, besides, grad_sum [R, D] (or
// none). in.x is the sum. grad_x [R, D] is the gradient to x as to y; grad_gain [D].
void rms_norm_backward(const Norm& in, const float* scale, View grad_norm, View grad_sum,
                       float* grad_x, float* grad_gain, const ParallelFor& parallel);

}  // namespace bmojo::kernels
