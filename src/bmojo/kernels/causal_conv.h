#pragma once

#include <cstdint>

#include "bmojo/kernels/history.h"
#include "bmojo/kernels/parallel.h"

// Shapes: B sequences, L tokens, E channels, K taps. All arrays are float and dense but for `View`.

namespace bmojo::kernels {

// The short convolution of a Mamba layer, channel by channel:
//   y_t = silu(bias + Σ_{i=0..K-1} weight[:, K-1-i] ⊙ x_{t-i}), summed in this order; x_{t-i} = 0
//   before the document; y_t = 0 behind a sequence's length
struct CausalConv {
  History history;                // C is E, depth is K - 1
  const float* weight = nullptr;  // [E, K], the last tap is the present
  const float* bias = nullptr;    // [E], or none
};

// y [B, L, E], next_tail [B, K - 1, E].
void causal_conv1d_silu(const CausalConv& conv, float* y, float* next_tail,
                        const ParallelFor& parallel);

// Of a loss whose gradient to y is grad_y [B, L, E] and to next_tail is grad_next [B, K - 1, E].
struct CausalConvGradients {
  float* x;       // [B, L, E]
  float* tail;    // [B, K - 1, E]
  float* weight;  // [B, E, K], still to be summed over sequences
  float* bias;    // [B, E], likewise
};
void causal_conv1d_silu_backward(const CausalConv& conv, View grad_y, const float* grad_next,
                                 const CausalConvGradients& out, const ParallelFor& parallel);

}  // namespace bmojo::kernels
