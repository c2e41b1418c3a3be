#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "bmojo/model/config.h"

namespace bmojo::nn {

// How far each output lies from its prediction. Shapes: B sequences, L tokens, D channels, k taps.
//   ε_t = √mean((y_t - Σ_{i=1..k} c_i y_{t-i})²)      the mean over channels
// y_{t-i} is read from `tail` where t < i, and is 0 where it lies before the document.
struct Innovation {
  at::Tensor y;                       // [B, L, D]
  at::Tensor tail;                    // [B, k, D] the outputs before this call, newest last
  at::Tensor positions;               // [B, L] int64, of each token in its document
  std::vector<int64_t> lengths = {};  // [B] tokens of each sequence; empty: L
  std::vector<double> coefficients;   // [k] c_1 … c_k
};

struct InnovationResult {
  at::Tensor epsilon;  // [B, L] in fp32 or wider; 0 behind a sequence's length
  at::Tensor tail;     // [B, k, D] after each sequence's last token
};

// Differentiable in y and tail; where ε is 0, so is its gradient. One kernel on the CPU in fp32,
// the reference elsewhere.
InnovationResult innovation(const Innovation& in);
// Plain tensor operations: any device and float type.
InnovationResult innovation_reference(const Innovation& in);

// c_1 … c_k of a config: c_i ∝ γ^(i-1), summing to 1.
std::vector<double> predictor(const model::Config& config);
// [B, L, D]: y_t - Σ_{i=1..k} c_i y_{t-i}, of which ε_t is the root mean square.
at::Tensor prediction_error(const Innovation& in);

}  // namespace bmojo::nn
