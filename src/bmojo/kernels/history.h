#pragma once

#include <algorithm>
#include <cstdint>

#include "bmojo/kernels/view.h"

namespace bmojo::kernels {

// Tokens that read the rows before them, across calls but never across documents. Shapes: B
// sequences, L tokens, C channels, and `depth` tokens that each one looks back at most.
struct History {
  int64_t B = 0, L = 0, C = 0, depth = 0;
  View x;                              // [B, L, C]
  const float* tail = nullptr;         // [B, depth, C] what came before the call, the newest last
  const int64_t* positions = nullptr;  // [B, L] of each token in its document
  const int64_t* lengths = nullptr;    // [B] tokens of each sequence, or none: L

  int64_t length(int64_t b) const { return lengths != nullptr ? lengths[b] : L; }
  int64_t position(int64_t b, int64_t t) const {
    return std::max<int64_t>(0, positions[b * L + t]);
  }
  // How far back token t sees.
  int64_t reach(int64_t b, int64_t t) const { return std::min(depth, position(b, t)); }
  // Row t ≥ -depth: of the tail where it is negative.
  const float* row(int64_t b, int64_t t) const {
    return t >= 0 ? x.data + (b * L + t) * x.stride : tail + ((b + 1) * depth + t) * C;
  }
  // next [B, depth, C]: the tail of the following call.
  void copy_tail(int64_t b, float* next) const {
    for (int64_t j = 0; j < depth; ++j)
      std::copy_n(row(b, length(b) - depth + j), C, next + (b * depth + j) * C);
  }
};

// Tokens that a forward task owns.
inline constexpr int64_t kHistoryBlock = 32;
// Channels that a backward task owns.
inline constexpr int64_t kHistoryGroup = 64;

}  // namespace bmojo::kernels
