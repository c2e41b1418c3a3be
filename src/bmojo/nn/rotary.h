#pragma once

#include <ATen/core/Tensor.h>

namespace bmojo::nn {

// Rotary encoding, half-split: x [..., heads, d] at `position` int64 [...], d even. With x = [a |
// b] and angle_j = position · theta^(-2j/d), j < d/2:
//   rotate(x) = [a cos(angle) - b sin(angle) | b cos(angle) + a sin(angle)]
// Differentiable in x. One kernel on the CPU in fp32, the reference elsewhere.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& position, double theta);
// Plain tensor operations: any device and float type.
at::Tensor rotate_reference(const at::Tensor& x, const at::Tensor& position, double theta);

}  // namespace bmojo::nn
