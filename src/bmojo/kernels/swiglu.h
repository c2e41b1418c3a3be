#pragma once

#include <cstdint>

#include "bmojo/kernels/parallel.h"
#include "bmojo/kernels/view.h"

namespace bmojo::kernels {

// y = silu(gate) ⊙ up, for R rows of F numbers.
struct SwiGlu {
  int64_t R = 0, F = 0;
  View gate, up;  // [R, F]
};

// y [R, F].
void swiglu(const SwiGlu& in, float* y, const ParallelFor& parallel);

// Gradients [R, F] to gate and up of a loss whose gradient to y is grad_y [R, F].
void swiglu_backward(const SwiGlu& in, View grad_y, float* grad_gate, float* grad_up,
                     const ParallelFor& parallel);

}  // namespace bmojo::kernels
