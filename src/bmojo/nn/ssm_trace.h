#pragma once

#include <ATen/core/Tensor.h>

// Shapes: B sequences, L tokens, E channels, N states, D width.

namespace bmojo::nn {

// What the SSM of a layer did in one call, as SelectiveScan has it.
struct SsmTrace {
  at::Tensor dt;       // [B, L, E]; undefined: not kept, or a layer without SSM
  at::Tensor dt_bias;  // [E]
  at::Tensor A;        // [E, N]
  at::Tensor y;        // [B, L, D] what the layer made of it: W_out of the scan
};

// [B, L, E, N]: exp(Δ_t A), what each token multiplies each state by.
at::Tensor poles(const SsmTrace& ssm);

// [B, L, E, N]: after so many tokens like this one a state has faded to 1/e. τ = -1 / log(pole),
// but from the exponent: a pole near 1 has lost the digits that say how near.
at::Tensor time_constants(const SsmTrace& ssm);

}  // namespace bmojo::nn
