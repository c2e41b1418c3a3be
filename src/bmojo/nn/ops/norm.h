#pragma once

#include <ATen/core/Tensor.h>

namespace bmojo::nn {

// rms_norm(x) = gain ⊙ x / √(mean(x²) + eps) over the last dimension: x [..., D], gain [D].
// Differentiable in x and gain. One kernel on the CPU in fp32, the reference elsewhere.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gain, double eps);
// Plain tensor operations, in fp32 or wider.
at::Tensor rms_norm_reference(const at::Tensor& x, const at::Tensor& gain, double eps);

struct AddedNorm {
  at::Tensor sum;   // [..., D]: x + y
  at::Tensor norm;  // [..., D]: rms_norm(sum)
};

// A residual sum and its norm in one pass, for x and y [..., D].
AddedNorm add_rms_norm(const at::Tensor& x, const at::Tensor& y, const at::Tensor& gain,
                       double eps);
AddedNorm add_rms_norm_reference(const at::Tensor& x, const at::Tensor& y, const at::Tensor& gain,
                                 double eps);

}  // namespace bmojo::nn
