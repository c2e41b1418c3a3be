#include "bmojo/realization/innovations.h"

#include <algorithm>
#include <cmath>

#include "bmojo/realization/random.h"
#include "bmojo/realization/registers.h"

namespace bmojo::realization {

GaussianSystem damped_oscillator() {
  return {.A = companion(Vector{-0.81, 1.8 * std::cos(0.6)}), .B = {0, 1}, .C = {0.5, 1}};
}

Vector sample(const GaussianSystem& system, size_t count, uint64_t seed) {
  Random random(seed);
  Vector x(system.B.size()), y(count);
  for (double& output : y) {
    output = dot(system.C, x) + std::sqrt(system.output_noise) * random.gaussian();
    x = system.A * x;
    const double w = random.gaussian();
    for (size_t i = 0; i < x.size(); ++i) x[i] += system.B[i] * w;
  }
  return y;
}

Vector optimal_residuals(const GaussianSystem& system, View y) {
  const auto& [A, B, C, noise] = system;
  Vector x(B.size()), out;       // x is known at t = 0, so P = 0
  Matrix P(B.size(), B.size());  // covariance of x - x̂, before y_t is seen
  for (double output : y) {
    const double error = output - dot(C, x);        // ε = y - C x̂
    const double variance = dot(C, P * C) + noise;  // S = C P Cᵀ + R
    Vector gain = A * (P * C);                      // K = A P Cᵀ / S
    for (double& k : gain) k /= variance;
    x = A * x;                 // x̂ ← A x̂ + K ε
    P = A * P * transpose(A);  // P ← A P Aᵀ + B Bᵀ - K S Kᵀ
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] += gain[i] * error;
      for (size_t j = 0; j < x.size(); ++j) P(i, j) += B[i] * B[j] - gain[i] * variance * gain[j];
    }
    out.push_back(error / std::sqrt(variance));
  }
  return out;
}

Vector order_one_residuals(View y) {
  const View now = y.subspan(1), before = y.first(y.size() - 1);
  const double rho = dot(now, before) / dot(before, before);
  Vector out;
  for (size_t t = 0; t < now.size(); ++t) out.push_back(now[t] - rho * before[t]);
  return out;
}

Vector running_mean_residuals(View y, size_t span) {
  Vector out;
  for (size_t t = span; t < y.size(); ++t) {
    double sum = 0;
    for (size_t i = 1; i <= span; ++i) sum += y[t - i];
    out.push_back(y[t] - sum / static_cast<double>(span));
  }
  return out;
}

}  // namespace bmojo::realization
