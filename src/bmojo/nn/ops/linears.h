#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace bmojo::nn {

// x [..., I] through several linear maps, weights [O, I] -> [..., O] each. The results of a group
// are columns of one array, of many rows by one product; the gradient to x is summed inside the
// products of all maps, without an array for each.
std::vector<at::Tensor> linears(const at::Tensor& x,
                                const std::vector<std::vector<at::Tensor>>& groups);
// One map.
at::Tensor linear_map(const at::Tensor& x, const at::Tensor& weight);
// One map, then bias [O] added to its product.
at::Tensor linear_map(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace bmojo::nn
