#pragma once

#include "bmojo/nn/ops/fused.h"

namespace bmojo::nn {

// a [M, K] · b [K, N] -> [M, N], of any strides; into `out`, whose rows are dense, or added to it.
// No gradient passes. Large products of fp32 are kernels::product where that is faster, the others
// torch's.
at::Tensor product(const at::Tensor& a, const at::Tensor& b);
void product_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b);
void add_product(at::Tensor& out, const at::Tensor& a, const at::Tensor& b);

// The kernel takes products of every size: for tests.
class EveryProduct : public Switch<EveryProduct> {};

}  // namespace bmojo::nn
