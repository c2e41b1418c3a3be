#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace bmojo::nn {

// x [..., I] through several linear maps, weights [O, I] -> [..., O] each. The weights of a group
// are multiplied at once, and their results are columns of one array; the gradient to x is summed
// inside the products of all maps, without an array for each.
std::vector<at::Tensor> linears(const at::Tensor& x,
                                const std::vector<std::vector<at::Tensor>>& groups);

}  // namespace bmojo::nn
