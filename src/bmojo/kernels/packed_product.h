#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "bmojo/kernels/parallel.h"
#include "bmojo/kernels/view.h"

namespace bmojo::kernels {

enum class WeightType { f32, bf16 };
constexpr std::string_view name_of(WeightType type) {
  return type == WeightType::bf16 ? "bf16" : "f32";
}
// None of another text.
constexpr std::optional<WeightType> weight_type_of(std::string_view name) {
  for (const auto type : {WeightType::f32, WeightType::bf16})
    if (name == name_of(type)) return type;
  return std::nullopt;
}

inline constexpr int64_t kPanelRows = 32;  // of W

// W [N, K] of a map x → W x, laid out once: panels of 32 of its rows, [panel][K][32], zeros behind
// row N. The layout is the same for every instruction set, so a file of it serves all machines.
struct PackedMatrix {
  int64_t N = 0, K = 0;
  WeightType type = WeightType::f32;
  const void* panels = nullptr;  // packed_bytes(N, K, type) bytes, 64-byte aligned
};

int64_t packed_bytes(int64_t N, int64_t K, WeightType type);

// Lays rows [first, first + count) of W out, src [count, K] being dense: float, or the bits of
// bf16. Numbers that bf16 cannot hold are rounded to the nearest, the even one of two. Matrices
// that share their input become one W, one behind the other: any rows in any number of calls, which
// must not run at the same time (they share panels). The call with row N - 1 fills the zeros behind
// it.
struct PackedRows {
  int64_t N = 0, K = 0;  // of all of W
  WeightType type = WeightType::f32;
  int64_t first = 0, count = 0;
  void* panels = nullptr;
};
void pack_rows(const float* src, const PackedRows& to, const ParallelFor& parallel);
void pack_rows(const uint16_t* src, const PackedRows& to, const ParallelFor& parallel);

// out [M, N], its rows out_stride apart, = x W^T, x [M, K]. Weights are widened to float. An
// element has the bits of kernels::product (product.h) for every M, instruction set and number of
// threads. Up to 8 rows allocate nothing.
struct PackedProduct {
  int64_t M = 0;
  View x;
  PackedMatrix w;
  float* out = nullptr;
  int64_t out_stride = 0;
};
void packed_product(const PackedProduct& in, const ParallelFor& parallel);

}  // namespace bmojo::kernels
