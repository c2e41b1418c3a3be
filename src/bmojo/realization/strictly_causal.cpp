#include "bmojo/realization/strictly_causal.h"

namespace bmojo::realization {
namespace {

// The input that reaches the state at step t is u_{t - delay}.
Vector rewritten_outputs(const DiagonalSystem& system, View u, size_t delay) {
  const auto& [a, b, c, d] = system;
  Vector x(a.size()), c_hat(a.size()), y(u.size());
  for (size_t i = 0; i < a.size(); ++i) c_hat[i] = c[i] * a[i] * b[i];
  const double d_hat = dot(c, b) + d;
  for (size_t t = 0; t < u.size(); ++t) {
    y[t] = dot(c_hat, x) + d_hat * u[t];
    const double input = t < delay ? 0 : u[t - delay];
    for (size_t i = 0; i < a.size(); ++i) x[i] = a[i] * x[i] + input;
  }
  return y;
}

}  // namespace

Vector strictly_causal_outputs(const DiagonalSystem& system, View u) {
  return rewritten_outputs(system, u, 0);
}

Vector strictly_causal_outputs(const VaryingSystem& systems, View u) {
  Vector x(systems.empty() ? 0 : systems[0].order()), y(u.size());
  for (size_t t = 0; t < u.size(); ++t) {
    const auto& [a, b, c, d] = systems[t];
    for (size_t i = 0; i < x.size(); ++i) y[t] += c[i] * a[i] * x[i];
    y[t] += (dot(c, b) + d) * u[t];
    for (size_t i = 0; i < x.size(); ++i) x[i] = a[i] * x[i] + b[i] * u[t];
  }
  return y;
}

Vector delayed_outputs(const DiagonalSystem& system, View u) {
  return rewritten_outputs(system, u, 1);
}

}  // namespace bmojo::realization
