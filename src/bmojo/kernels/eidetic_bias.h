#pragma once

#include <cstdint>

#include "bmojo/kernels/parallel.h"

namespace bmojo::kernels {

// What is added to the scores of eidetic keys, for P sets of m places each:
//   l_j    = ln(ε_j + 1e-6)
//   bias_j = β (l_j - mean of l over the set's members)
// The mean is summed by time, one member after the other, and divided once: an empty place leaves
// no trace in it, wherever it stands.
struct EideticBias {
  int64_t P = 1, m = 0;
  const float* innovation = nullptr;  // [P, m] ε, by time
  const bool* there = nullptr;        // [P, m] false: an empty place; null: there is none
  float beta = 0;
};

// bias [P, m], 0 in empty places.
void eidetic_bias(const EideticBias& in, float* bias, const ParallelFor& parallel);

// Gradients to the innovation [P, m] and to β, a part for each set [P], of a loss whose gradient to
// bias is grad_bias [P, m].
void eidetic_bias_backward(const EideticBias& in, const float* grad_bias, float* grad_innovation,
                           float* grad_beta, const ParallelFor& parallel);

}  // namespace bmojo::kernels
