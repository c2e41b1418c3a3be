#pragma once

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <initializer_list>
#include <vector>

#include "bmojo/base/error.h"
#include "bmojo/kernels/cpu.h"
#include "bmojo/kernels/view.h"
#include "bmojo/nn/ops/parallel.h"
#include "bmojo/nn/ops/types.h"

// What the wrappers over kernels share: when a kernel can run, how its arguments are checked, and
// how torch's threads and tensors reach it.

namespace bmojo::nn {

// Kernels take fp32 on the CPU; anything else runs the reference.
inline bool on_cpu_in_float(std::initializer_list<at::Tensor> tensors) {
  for (const auto& x : tensors)
    if (x.defined() && (!x.is_cpu() || x.scalar_type() != at::kFloat)) return false;
  return true;
}

// Something is so in the whole process while one of its kind lives.
template <typename Kind>
class Switch {
 public:
  Switch() { ++count(); }
  ~Switch() { --count(); }
  Switch(const Switch&) = delete;
  Switch& operator=(const Switch&) = delete;
  static bool active() { return count() > 0; }

 private:
  static int& count() {
    static int n = 0;
    return n;
  }
};

// Every operation runs its reference: for tests and benchmarks.
class ReferenceOnly : public Switch<ReferenceOnly> {};

inline bool use_kernel(std::initializer_list<at::Tensor> tensors) {
  if (ReferenceOnly::active() || !on_cpu_in_float(tensors)) return false;
  kernels::require_simd();
  return true;
}

// At the head of every backward pass: what it returns has no graph of its own.
inline void first_derivative_only(const char* operation) {
  base::require(!at::GradMode::is_enabled(),
                "{}: has no second derivative; backward without create_graph", operation);
}

inline std::string describe(const at::Tensor& x) {
  return x.defined() ? fmt::format("[{}]", fmt::join(x.sizes(), ", ")) : "none";
}

// Whether a backward pass may follow; if not, a kernel keeps nothing for it.
inline bool differentiable(std::initializer_list<at::Tensor> inputs) {
  if (!at::GradMode::is_enabled()) return false;
  for (const auto& x : inputs)
    if (x.defined() && x.requires_grad()) return true;
  return false;
}

// subject: argument must be [2, 16, 64], got [2, 16, 32]
inline void check_shape(const char* operation, const char* argument, const at::Tensor& x,
                        at::IntArrayRef shape) {
  base::require(x.defined() && x.sizes() == shape, "{}: {} must be [{}], got {}", operation,
                argument, fmt::join(shape, ", "), describe(x));
}
inline void check_floating(const char* operation, const char* argument, const at::Tensor& x) {
  base::require(x.is_floating_point(), "{}: {} must hold floating-point numbers, got {}", operation,
                argument, c10::toString(x.scalar_type()));
}
// Type and device of every argument must be those of the first.
inline void check_like(const char* operation, const char* argument, const at::Tensor& x,
                       const at::Tensor& first) {
  base::require(x.scalar_type() == first.scalar_type(), "{}: {} must be {}, got {}", operation,
                argument, c10::toString(first.scalar_type()), c10::toString(x.scalar_type()));
  base::require(x.device() == first.device(), "{}: {} must be on {}, got {}", operation, argument,
                first.device().str(), x.device().str());
}
// What keeps a state or a score: fp32 where the first argument is narrower.
inline void check_wide(const char* operation, const char* argument, const at::Tensor& x,
                       const at::Tensor& first) {
  base::require(x.scalar_type() == compute_type(first), "{}: {} must be {}, got {}", operation,
                argument, c10::toString(compute_type(first)), c10::toString(x.scalar_type()));
  base::require(x.device() == first.device(), "{}: {} must be on {}, got {}", operation, argument,
                first.device().str(), x.device().str());
}

inline void check_lengths(const char* operation, const std::vector<int64_t>& lengths, int64_t B,
                          int64_t L) {
  base::require(lengths.empty() || std::ssize(lengths) == B,
                "{}: lengths must have {} entries, got {}", operation, B, lengths.size());
  for (const auto length : lengths)
    base::require(length >= 0 && length <= L, "{}: lengths must be from 0 to {}, got {}", operation,
                  L, length);
}
// [B], undefined where there are none.
at::Tensor lengths_tensor(const std::vector<int64_t>& lengths);

// x [B, L, n] with dense rows at one stride; copied only where it is not so already.
at::Tensor with_rows(const at::Tensor& x);
inline kernels::View rows_of(const at::Tensor& x) {
  return {x.const_data_ptr<float>(), x.size(1) == 1 ? x.stride(0) : x.stride(1)};
}

// [..., n] as [1, R, n] with rows at one stride.
inline at::Tensor as_rows(const at::Tensor& x) {
  const int64_t n = x.size(-1);
  return with_rows(x.reshape({1, x.numel() / n, n}));
}

inline const float* floats(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<float>() : nullptr;
}

}  // namespace bmojo::nn
