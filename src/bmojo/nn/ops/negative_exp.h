#pragma once

#include <ATen/core/Tensor.h>

namespace bmojo::nn {

// A = -exp(A_log), in fp32 where A_log is narrower. One kernel on the CPU in fp32, plain tensor
// operations elsewhere.
at::Tensor negative_exp(const at::Tensor& a_log);

}  // namespace bmojo::nn
