#include "bmojo/realization/load_state.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace bmojo::realization {
namespace {

Vector column(const Matrix& a, size_t j) {
  Vector out(a.rows);
  for (size_t i = 0; i < a.rows; ++i) out[i] = a(i, j);
  return out;
}

}  // namespace

Matrix scan(Matrix h, const std::vector<ScanStep>& steps) {
  for (const auto& [decay, gain, x] : steps)
    for (size_t e = 0; e < h.rows; ++e)
      for (size_t n = 0; n < h.columns; ++n) h(e, n) = decay(e, n) * h(e, n) + gain(e, n) * x[e];
  return h;
}

std::vector<ScanStep> loading_steps(const Matrix& h0) {
  std::vector<ScanStep> steps;
  for (size_t n = 0; n < h0.columns; ++n) {
    Matrix ones(h0.rows, h0.columns), one_hot = ones;
    std::fill(ones.values.begin(), ones.values.end(), 1);
    for (size_t e = 0; e < h0.rows; ++e) one_hot(e, n) = 1;
    steps.push_back({.decay = std::move(ones), .gain = std::move(one_hot), .x = column(h0, n)});
  }
  return steps;
}

ScanStep mamba_step(const Matrix& A, double dt, View B, Vector x) {
  ScanStep step{.decay = A, .gain = A, .x = std::move(x)};
  for (size_t e = 0; e < A.rows; ++e)
    for (size_t n = 0; n < A.columns; ++n) {
      step.decay(e, n) = std::exp(dt * A(e, n));
      step.gain(e, n) = dt * B[n];
    }
  return step;
}

std::vector<ScanStep> mamba_loading_steps(const Matrix& h0, const Matrix& A, double dt) {
  std::vector<ScanStep> steps;
  for (size_t n = 0; n < h0.columns; ++n) {
    Vector B(h0.columns);
    B[n] = 1 / dt;
    steps.push_back(mamba_step(A, dt, B, column(h0, n)));
  }
  return steps;
}

std::vector<ScanStep> compensated_loading_steps(const Matrix& h0, const Matrix& A, double dt) {
  auto steps = mamba_loading_steps(h0, A, dt);
  for (size_t n = 0; n < steps.size(); ++n)
    for (size_t e = 0; e < h0.rows; ++e)
      steps[n].x[e] *= std::exp(-dt * A(e, n) * static_cast<double>(steps.size() - 1 - n));
  return steps;
}

}  // namespace bmojo::realization
