#include "bmojo/nn/ops/fused.h"

#include <torch/torch.h>

namespace bmojo::nn {

at::Tensor lengths_tensor(const std::vector<int64_t>& lengths) {
  return lengths.empty() ? at::Tensor() : torch::tensor(lengths, torch::kLong);
}

at::Tensor with_rows(const at::Tensor& x) {
  const int64_t B = x.size(0), L = x.size(1);
  const bool dense = x.stride(2) == 1 || x.size(2) == 1;
  // Row (b, t) must stand at (b L + t) · stride.
  const bool even = B == 1 || L == 1 || x.stride(0) == L * x.stride(1);
  const bool apart = (L == 1 ? x.stride(0) : x.stride(1)) >= x.size(2) || B * L == 1;
  return dense && even && apart ? x : x.contiguous();
}

}  // namespace bmojo::nn
