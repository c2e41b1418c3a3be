// Numbers that depend on the seed alone: the standard fixes mt19937_64, but not its distributions.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>

#include "bmojo/realization/matrix.h"

namespace bmojo::realization {

class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}

  // Above 0 and at most 1: its logarithm is finite.
  double uniform() { return static_cast<double>((bits_() >> 11) + 1) * 0x1p-53; }

  // Box and Muller: sqrt(-2 ln u) cos(2 pi v)
  double gaussian() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

  Vector gaussians(size_t count) {
    Vector out(count);
    for (double& x : out) x = gaussian();
    return out;
  }

  Matrix gaussians(size_t rows, size_t columns) {
    Matrix out(rows, columns);
    out.values = gaussians(rows * columns);
    return out;
  }

 private:
  std::mt19937_64 bits_;
};

}  // namespace bmojo::realization
