#pragma once

#include <ATen/core/Tensor.h>

namespace bmojo::nn {

// h_t = a_t ⊙ h_{t-1} + b_t for a, b [B, L, …] and h_{-1} = h0 [B, …]; returns every h_t [B, L, …].
// Differentiable in all three. In blocks of about √L: 2 √L operations instead of L.
at::Tensor linear_scan(const at::Tensor& a, const at::Tensor& b, const at::Tensor& h0);

}  // namespace bmojo::nn
