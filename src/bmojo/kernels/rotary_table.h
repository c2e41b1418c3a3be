#pragma once

#include <cstdint>
#include <vector>

#include "bmojo/kernels/parallel.h"

namespace bmojo::kernels {

// theta^(-j / half) for j < half, to the nearest double or the next: how far a position turns each
// pair of channels. theta > 0. Made once for a model.
std::vector<double> rotary_frequencies(int64_t half, double theta);

// cos and sin [T, half] of position_t · frequency_j: the product in double, its cosine and sine
// rounded to float. A row depends on its position alone. |angles| below 2^31; up to 2^24 the
// numbers are off by no more than half a unit in the last place and 1e-15.
struct RotaryTable {
  int64_t T = 0, half = 0;
  const int64_t* position = nullptr;  // [T]
  const double* frequency = nullptr;  // [half]
};
void rotary_table(const RotaryTable& in, float* cos, float* sin, const ParallelFor& parallel);

}  // namespace bmojo::kernels
