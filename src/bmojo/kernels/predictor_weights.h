#pragma once

#include <cstdint>
#include <vector>

namespace bmojo::kernels {

// The predictor's taps: c_i = γ^(i-1) / Σ_{j=1..k} γ^(j-1), i = 1 … k. Powers are repeated products
// and the sum runs by rising j; kernels::innovation takes them rounded to float.
std::vector<double> predictor_weights(int64_t k, double gamma);

}  // namespace bmojo::kernels
