#pragma once

#include <cstdint>

#include "bmojo/kernels/history.h"
#include "bmojo/kernels/parallel.h"

// Shapes: B sequences, L tokens, D channels, k taps. All arrays are float and dense but for `View`.

namespace bmojo::kernels {

// How far each output lies from its prediction:
//   e_t   = y_t - Σ_{i=1..k} c_i y_{t-i}     [D], in this order; y_{t-i} = 0 before the document
//   eps_t = √mean(e_t²)                      0 behind a sequence's length
struct Innovation {
  History history;           // of y: C is D, depth is k
  const float* c = nullptr;  // [k]
};

// eps [B, L], next_tail [B, k, D].
void innovation(const Innovation& in, float* eps, float* next_tail, const ParallelFor& parallel);

// Gradients to y [B, L, D] and tail [B, k, D] of a loss whose gradient to eps is grad_eps [B, L]
// and to next_tail is grad_next [B, k, D]. Where eps is 0, its gradient counts as 0.
void innovation_backward(const Innovation& in, const float* eps, const float* grad_eps,
                         const float* grad_next, float* grad_y, float* grad_tail,
                         const ParallelFor& parallel);

}  // namespace bmojo::kernels
