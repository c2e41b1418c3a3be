#pragma once

#include <cstdint>

namespace bmojo::kernels {

// A_i = -exp(A_log_i) for n numbers: the decay rates of the scan. In place where both are one
// array. dA / dA_log = A.
void negative_exp(const float* a_log, int64_t n, float* A);

}  // namespace bmojo::kernels
