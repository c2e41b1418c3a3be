#pragma once

#include <ATen/core/Tensor.h>

namespace bmojo::nn {

// silu(gate) ⊙ up, for gate and up of one shape [..., F]; silu(x) = x / (1 + exp(-x)).
// Differentiable in both. One kernel on the CPU in fp32, the reference elsewhere.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
// swiglu(gate, up) through a linear map, weight [D, F] -> [..., D]. Nothing of swiglu's is kept for
// the backward pass, which computes it again: a pass over memory against a third of what an MLP
// keeps.
at::Tensor swiglu_linear(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& weight);
// Plain tensor operations.
at::Tensor swiglu_reference(const at::Tensor& gate, const at::Tensor& up);

}  // namespace bmojo::nn
