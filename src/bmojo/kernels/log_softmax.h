#pragma once

#include <cstdint>

#include "bmojo/kernels/parallel.h"
#include "bmojo/kernels/view.h"

namespace bmojo::kernels {

// ln softmax(x)_j = (x_j - largest) - ln Σ_k exp(x_k - largest) for one row of logits x [V], the
// sum in kChains chains (row-inl.h). With NaN or +∞ in the row, or -∞ alone, log_sum is NaN.
struct LogSoftmax {
  float largest, log_sum;
  float log_p(float x) const { return (x - largest) - log_sum; }
};
LogSoftmax log_softmax(const float* x, int64_t V);
// norm.log_p(x), whatever the caller's rounding mode is.
float log_p(const LogSoftmax& norm, float x);

// The lowest of the ids with the largest logit; 0 where the row has no number.
int64_t most_likely(const float* x, int64_t V);

// Of n rows of logits x [n, V], each of its row alone. Outputs [n] that are null are left out.
struct RowScores {
  float* target = nullptr;  // ln softmax(x_i)[target_i]
  int64_t* best = nullptr;  // most_likely(x_i), and 0 where log_sum is NaN
  float* best_log_p = nullptr;
};
void score_rows(View x, int64_t n, int64_t V, const int64_t* target, const RowScores& out,
                const ParallelFor& parallel);

}  // namespace bmojo::kernels
