#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace bmojo::nn {

// The selective scan of a Mamba layer. Shapes: B sequences, L tokens, E channels, N states.
//   Δ_t = softplus(dt_t + dt_bias)                  [E]; softplus(x) = x above 20
//   h_t = exp(Δ_t A) ⊙ h_{t-1} + Δ_t x_t B_t        [E, N]; h_{t-1} = 0 where a document starts
//   y_t = (C_t·h_t + D ⊙ x_t) ⊙ silu(z_t)           [E]
struct SelectiveScan {
  at::Tensor x, dt, z;     // [B, L, E]
  at::Tensor B, C;         // [B, L, N]
  at::Tensor A;            // [E, N], at most 0
  at::Tensor D, dt_bias;   // [E]
  at::Tensor h0;           // [B, E, N]
  at::Tensor starts = {};  // [B, L] bool; undefined: no document starts inside
  std::vector<int64_t> lengths =
      {};  // [B] tokens of each sequence; empty: L. What follows leaves h as it is
};

struct ScanResult {
  at::Tensor y;  // [B, L, E]; 0 behind a sequence's length
  at::Tensor h;  // [B, E, N] after each sequence's last token
};

// Differentiable in every float argument. One kernel on the CPU in fp32, the reference elsewhere.
ScanResult selective_scan(const SelectiveScan& scan);
// Plain tensor operations: any device, float or double (16-bit x and z are widened).
ScanResult selective_scan_reference(const SelectiveScan& scan);

// h_t = a_t ⊙ h_{t-1} + b_t for a, b [B, L, …] and h_{-1} = h0 [B, …]; returns every h_t [B, L, …].
// Differentiable in all three. In blocks of about √L: 2 √L operations instead of L.
at::Tensor linear_scan(const at::Tensor& a, const at::Tensor& b, const at::Tensor& h0);

}  // namespace bmojo::nn
