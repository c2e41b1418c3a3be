#pragma once

#include <ATen/core/Tensor.h>

namespace bmojo::nn {

// The cosine and sine of angle_j = position · theta^(-2j/d), j < d/2: [..., d / 2] for `position`
// int64 [...]. Computed in double, an angle in fp32 is off by up to 0.004 at position 100,000; then
// rounded to `type`. One kernel on the CPU for fp32, plain tensor operations elsewhere.
struct Angles {
  at::Tensor cos, sin;
};
Angles rotary_angles(const at::Tensor& position, int64_t d, double theta, at::ScalarType type);

// Rotary encoding, half-split: x [..., heads, d], d even, by angles [..., d / 2] of its type. With
// x = [a | b]:
//   rotate(x) = [a cos(angle) - b sin(angle) | b cos(angle) + a sin(angle)]
// Differentiable in x. One kernel on the CPU in fp32, the reference elsewhere.
at::Tensor rotate(const at::Tensor& x, const Angles& angles);
// Plain tensor operations: any device and float type.
at::Tensor rotate_reference(const at::Tensor& x, const Angles& angles);

}  // namespace bmojo::nn
