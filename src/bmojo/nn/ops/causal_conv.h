#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace bmojo::nn {

// The short convolution of a Mamba layer. Shapes: B sequences, L tokens, E channels, K taps.
//   y_t = silu(bias + Σ_{i=0..K-1} weight[:, K-1-i] ⊙ x_{t-i})   [E]
// x_{t-i} is read from `tail` where t < i, and is 0 where it lies before the document.
struct CausalConv {
  at::Tensor x;                       // [B, L, E]
  at::Tensor weight;                  // [E, 1, K], the last tap is the present
  at::Tensor bias = {};               // [E], or undefined: 0
  at::Tensor tail;                    // [B, K - 1, E] the tokens before this call, newest last
  at::Tensor positions;               // [B, L] int64, of each token in its document
  std::vector<int64_t> lengths = {};  // [B] tokens of each sequence; empty: L
};

struct CausalConvResult {
  at::Tensor y;     // [B, L, E]; 0 behind a sequence's length
  at::Tensor tail;  // [B, K - 1, E] after each sequence's last token
};

// Differentiable in x, weight, bias and tail. One kernel on the CPU in fp32, the reference
// elsewhere.
CausalConvResult causal_conv1d_silu(const CausalConv& conv);
// Plain tensor operations: any device and float type.
CausalConvResult causal_conv1d_silu_reference(const CausalConv& conv);

}  // namespace bmojo::nn
