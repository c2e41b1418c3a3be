#pragma once

#include <ATen/ATen.h>

#include <vector>

// Operations whose obvious form has no kernel for tensors without values (the meta device), and
// tensors of what was computed beside them.

namespace bmojo::nn {

// Rows of x [n, …] by index [m], with gradient; index_select is the faster where there are values.
inline at::Tensor take_rows(const at::Tensor& x, const at::Tensor& index) {
  return x.is_meta() ? at::index(x, {index}) : x.index_select(0, index);
}

// A copy of whole numbers, whatever the device.
inline at::Tensor from_host(const std::vector<int64_t>& values, at::IntArrayRef shape,
                            at::Device device) {
  auto* data = const_cast<int64_t*>(values.data());  // only borrowed, until the clone
  return at::from_blob(data, shape, at::kLong).clone().to(device);
}
inline at::Tensor from_host(const std::vector<int64_t>& values, at::Device device) {
  return from_host(values, {static_cast<int64_t>(values.size())}, device);
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
