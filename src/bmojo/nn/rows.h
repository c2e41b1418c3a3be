#pragma once

#include <ATen/ATen.h>

// Operations whose obvious form has no kernel for tensors without values (the meta device).

namespace bmojo::nn {

// Rows of x [n, …] by index [m], with gradient; index_select is the faster where there are values.
inline at::Tensor take_rows(const at::Tensor& x, const at::Tensor& index) {
  return x.is_meta() ? at::index(x, {index}) : x.index_select(0, index);
}

// condition ? a : b, for whole numbers.
inline at::Tensor choose(const at::Tensor& condition, const at::Tensor& a, const at::Tensor& b) {
  return b + (a - b) * condition;
}

// For each value the first place in its sorted row that is not smaller.
inline at::Tensor find_in_sorted(const at::Tensor& rows, const at::Tensor& values) {
  return values.is_meta() ? at::empty_like(values) : at::searchsorted(rows, values);
}

}  // namespace bmojo::nn
