#include "bmojo/realization/registers.h"

#include <algorithm>

namespace bmojo::realization {

Matrix companion(View last_row) {
  const size_t order = last_row.size();
  Matrix out(order, order);
  for (size_t i = 0; i + 1 < order; ++i) out(i, i + 1) = 1;
  for (size_t j = 0; j < order; ++j) out(order - 1, j) = last_row[j];
  return out;
}

Matrix oldest_accumulates(size_t order) {
  Matrix out = companion(Vector(order));
  out(0, 0) = 1;
  return out;
}

void Registers::step(const Matrix& a, View input) {
  state_ = a * state_;
  for (size_t j = 0; j < input.size(); ++j) state_(order() - 1, j) += input[j];
  num_filled_ = std::min(num_filled_ + 1, order());
}

Vector Registers::read(View c) const { return transpose(state_) * c; }

}  // namespace bmojo::realization
