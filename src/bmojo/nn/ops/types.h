#pragma once

#include <ATen/ATen.h>

namespace bmojo::nn {

// bf16 and f16 are storage: sums and recurrences run in fp32. float and double stay as they are.
inline at::ScalarType compute_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}
inline at::Tensor widen(const at::Tensor& x) { return x.to(compute_type(x)); }

}  // namespace bmojo::nn
