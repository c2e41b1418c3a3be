// A linear system driven by Gaussian noise, and what predictors of its output leave over.
//
//   x_{t+1} = A x_t + B w_t        w_t, v_t independent, of variance 1 and `output_noise`
//   y_t     = C·x_t + v_t          x_0 = 0
#pragma once

#include <cstdint>

#include "bmojo/realization/matrix.h"

namespace bmojo::realization {

struct GaussianSystem {
  Matrix A;
  Vector B, C;
  double output_noise = 1;
};

// Two registers with the poles 0.9 e^{±0.6i}: order 2, known.
GaussianSystem damped_oscillator();

Vector sample(const GaussianSystem& system, size_t count, uint64_t seed);

// Residuals y_t - ŷ_t of one-step predictors. The optimal one is Kalman's, which knows the system;
// its residuals are divided by their standard deviation.
Vector optimal_residuals(const GaussianSystem& system, View y);

// ŷ_t = ρ y_{t-1}, with the ρ that is best for this series: order 1 is too short.
Vector order_one_residuals(View y);

// ŷ_t = the mean of the last `span` outputs: the fixed predictor of a B'MOJO layer.
Vector running_mean_residuals(View y, size_t span);

}  // namespace bmojo::realization
