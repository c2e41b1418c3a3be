#include "bmojo/realization/oscillator.h"

#include <algorithm>
#include <cmath>

namespace bmojo::realization {
namespace {

constexpr int kGrid = 110;  // poles lie at multiples of 1 / 100

// Of the projection of y onto the span of x and z, which may be parallel.
double projected_energy(View x, View z, View y) {
  const double xx = dot(x, x), zz = dot(z, z), xz = dot(x, z), xy = dot(x, y), zy = dot(z, y);
  const double determinant = xx * zz - xz * xz;
  if (determinant <= 1e-12 * xx * zz) return xy * xy / xx;
  return (zz * xy * xy - 2 * xz * xy * zy + xx * zy * zy) / determinant;
}

}  // namespace

TransferFunction oscillator(double theta) {
  return {.numerator = {0, 1}, .denominator = {1, -2 * std::cos(theta), 1}, .feedthrough = 0};
}

Recurrence recurrence_of(View y) {
  const double determinant = y[1] * y[1] - y[0] * y[2];
  return {.p = (y[1] * y[2] - y[0] * y[3]) / determinant,
          .q = (y[1] * y[3] - y[2] * y[2]) / determinant};
}

double best_real_diagonal_fit(View y) {
  std::vector<Vector> modes;
  for (int k = -kGrid; k <= kGrid; ++k) {
    Vector mode(y.size(), 1);
    for (size_t t = 1; t < y.size(); ++t) mode[t] = mode[t - 1] * k / 100;
    modes.push_back(mode);
  }
  double most = 0;
  for (size_t i = 0; i < modes.size(); ++i)
    for (size_t j = 0; j < i; ++j) most = std::max(most, projected_energy(modes[i], modes[j], y));
  return std::sqrt(std::max(0.0, 1 - most / dot(y, y)));
}

}  // namespace bmojo::realization
