#include "bmojo/realization/bilinear.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace bmojo::realization {
namespace {

const Vector kA{-1, -2, -3, -4};  // Mamba's own initial values
const Vector kStart{1, -0.5, 0.8, 0.3};
const Vector kInputWeights{0.7, -0.4, 0.2, 0.9};
constexpr double kStepWeight = 0.8;

double softplus(double x) { return std::log1p(std::exp(x)); }

double input_at(double time) { return std::sin(5 * time) + 0.5 * std::cos(11 * time); }

double distance(View x, View y) {
  double out = 0;
  for (size_t i = 0; i < x.size(); ++i) out = std::max(out, std::abs(x[i] - y[i]));
  return out;
}

double error_after(int64_t num_steps, double step) {
  Vector exact = kStart, bilinear = kStart;
  for (int64_t t = 0; t < num_steps; ++t) {
    const double u = input_at(static_cast<double>(t) * step);
    const double dt = step * softplus(kStepWeight * u);  // Δ_t
    Vector B = kInputWeights;
    for (double& b : B) b *= u;
    exact = mamba_state(kA, dt, B, u, exact);
    bilinear = bilinear_state(kA, dt, B, u, bilinear);
  }
  return distance(exact, bilinear);
}

}  // namespace

Vector mamba_state(View A, double dt, View B, double u, View h) {
  Vector out(h.size());
  for (size_t n = 0; n < h.size(); ++n) out[n] = std::exp(dt * A[n]) * h[n] + dt * B[n] * u;
  return out;
}

Vector bilinear_state(View A, double dt, View B, double u, View h) {
  Vector out(h.size());
  for (size_t n = 0; n < h.size(); ++n) out[n] = h[n] + dt * (A[n] * h[n] + B[n] * u);
  return out;
}

std::vector<BilinearError> bilinear_errors(double horizon, int first, int last) {
  std::vector<BilinearError> out;
  for (int k = first; k <= last; ++k) {
    const double step = std::ldexp(horizon, -k);
    out.push_back({step, error_after(1, step), error_after(int64_t{1} << k, step)});
  }
  return out;
}

double log_slope(View x, View y) {
  double mean_x = 0, mean_y = 0, xx = 0, xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    mean_x += std::log(x[i]) / static_cast<double>(x.size());
    mean_y += std::log(y[i]) / static_cast<double>(x.size());
  }
  for (size_t i = 0; i < x.size(); ++i) {
    xx += (std::log(x[i]) - mean_x) * (std::log(x[i]) - mean_x);
    xy += (std::log(x[i]) - mean_x) * (std::log(y[i]) - mean_y);
  }
  return xy / xx;
}

}  // namespace bmojo::realization
