#pragma once

#include <cstdint>

namespace bmojo::kernels {

// [B, L, n] whose rows of n numbers lie `stride` apart: row (b, t) at data + (b L + t) stride.
struct View {
  const float* data = nullptr;
  int64_t stride = 0;
};

}  // namespace bmojo::kernels
