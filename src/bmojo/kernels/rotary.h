#pragma once

#include <cstdint>

#include "bmojo/kernels/parallel.h"
#include "bmojo/kernels/view.h"

namespace bmojo::kernels {

// Rotary encoding, half-split. Shapes: T tokens, H heads of size 2 h. With x = [a | b]:
//   y = [a cos - b sin | b cos + a sin]
struct Rotary {
  int64_t T = 0, H = 0, half = 0;
  View x;                      // [T, H · 2 h]: the heads of a token are dense
  const float* cos = nullptr;  // [T, h]
  const float* sin = nullptr;  // [T, h]
  bool back = false;           // turn by the negative angle: the gradient, and the inverse
};

// y [T, H, 2 h], dense.
void rotate(const Rotary& in, float* y, const ParallelFor& parallel);

}  // namespace bmojo::kernels
