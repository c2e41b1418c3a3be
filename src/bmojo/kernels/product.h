#pragma once

#include <cstdint>

#include "bmojo/kernels/parallel.h"

namespace bmojo::kernels {

// Element (i, j) lies at data[i * row + j * column]; any steps, fast where one of them is 1.
struct Matrix {
  const float* data;
  int64_t row, column;
};

// out [M, N], its rows out_stride apart, = a [M, K] · b [K, N], or out + a · b where `add` is set.
// An element is a sum in order of k, in blocks of 512 that begin at 0 and are added one after the
// other: its bits depend on its row of a and its column of b alone, and a sum over the tokens of a
// batch, 100,000 and more, is no chain of as many roundings.
struct Product {
  int64_t M, N, K;
  Matrix a, b;
  float* out;
  int64_t out_stride;
  bool add = false;
};
void product(const Product& in, const ParallelFor& parallel);

}  // namespace bmojo::kernels
