#pragma once

#include <ATen/core/Tensor.h>

namespace bmojo::nn {

// silu(gate) ⊙ up, for gate and up of one shape [..., F]; silu(x) = x / (1 + exp(-x)).
// Differentiable in both. One kernel on the CPU in fp32, the reference elsewhere.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
// Plain tensor operations.
at::Tensor swiglu_reference(const at::Tensor& gate, const at::Tensor& up);

}  // namespace bmojo::nn
