// N registers, each a vector: the state of the controllable canonical form. Register 0 is the
// oldest, register N - 1 the newest.
//
//         | 0    1           |          | 0 |
//   A_t = |         …        |      B = | : |      x_t = A_t x_{t-1} + B b_t
//         |              1   |          | 0 |
//         | a_1  a_2  …  a_N |          | 1 |
//
// A_t acts on whole registers: each of its numbers stands for that multiple of the identity.
#pragma once

#include "bmojo/realization/matrix.h"

namespace bmojo::realization {

// A of the companion form, with the last row given. Zeros leave a shift: what enters is gone after
// N steps.
Matrix companion(View last_row);

// The shift whose oldest register keeps what would leave it: x_1 ← x_1 + x_2.
Matrix oldest_accumulates(size_t order);

class Registers {
 public:
  Registers(size_t order, size_t width) : state_(order, width) {}

  // x ← A x + B b, with A of this step: its last row may depend on the input.
  void step(const Matrix& a, View input);

  size_t order() const { return state_.rows; }
  // How many have been reached by an input; the others are empty.
  size_t num_filled() const { return num_filled_; }
  View operator[](size_t i) const { return state_.row(i); }

  // Σ_i c_i x_i
  Vector read(View c) const;

 private:
  Matrix state_;  // [order, width]
  size_t num_filled_ = 0;
};

}  // namespace bmojo::realization
