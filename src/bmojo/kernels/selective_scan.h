#pragma once

#include <cstdint>

#include "bmojo/kernels/parallel.h"
#include "bmojo/kernels/view.h"

// Shapes: B sequences, L tokens, E channels, N states. All arrays are float and dense but for
// `View`.

namespace bmojo::kernels {

// The selective scan of a Mamba layer, with document resets and ragged sequences:
//   Δ_t = softplus(dt_t + dt_bias)                  [E]
//   h_t = exp(Δ_t A) ⊙ h_{t-1} + Δ_t x_t B_t        [E, N]; h_{t-1} = 0 where starts[t]
//   y_t = (C_t·h_t + D ⊙ x_t) ⊙ silu(z_t)           [E]; 0 behind a sequence's length
struct Scan {
  int64_t B = 0, L = 0, E = 0, N = 0;
  View x, dt, z;                     // [B, L, E]
  View input, output;                // [B, L, N] the paper's B and C
  const float* A = nullptr;          // [E, N], ≤ 0
  const float* D = nullptr;          // [E]
  const float* dt_bias = nullptr;    // [E]
  const float* h0 = nullptr;         // [B, E, N]
  const uint8_t* starts = nullptr;   // [B, L], or none
  const int64_t* lengths = nullptr;  // [B], or none: L
  bool states_first = false;         // A is [N, E], h0 and h_last are [B, N, E]; forward alone
};

// The forward pass leaves the state before every block of this many tokens; the backward pass
// starts from there and computes the states between again.
inline constexpr int64_t kScanBlock = 32;
inline int64_t scan_blocks(int64_t L) { return (L + kScanBlock - 1) / kScanBlock; }

// y [B, L, E], h_last [B, E, N]; block_states [B, scan_blocks(L), N, E], or null: no backward will
// follow.
void selective_scan(const Scan& scan, float* y, float* h_last, float* block_states,
                    const ParallelFor& parallel);

// Of a loss whose gradient to y is grad_y [B, L, E] and to h_last is grad_h [B, E, N].
struct ScanGradients {
  float *x, *dt, *z;      // [B, L, E]
  float *input, *output;  // [B, L, N]
  float* A;               // [B, E, N], still to be summed over sequences
  float *D, *dt_bias;     // [B, E], likewise
  float* h0;              // [B, E, N]
};
void selective_scan_backward(const Scan& scan, const float* block_states, View grad_y,
                             const float* grad_h, const ScanGradients& out,
                             const ParallelFor& parallel);

}  // namespace bmojo::kernels
