#pragma once

#include <cstdint>
#include <span>

#include "bmojo/kernels/parallel.h"

// Shapes: H query heads, G key/value heads, r = H / G, d head size. All arrays are dense.

namespace bmojo::kernels {

// Rows that lie one behind the other: row i at first + i · stride; a row is [2, G, d], a key and
// its value.
struct RowRun {
  const float* first = nullptr;
  int64_t count = 0;
};

// The query of one token and the rows it sees, all of them and in their order. At least one.
struct AttentionStep {
  const float* q = nullptr;  // [H, d]
  RowRun runs[6];  // e.g. eidetic, fading and window in two parts each, itself; count 0: none
  const float* bias = nullptr;  // [num_biased] of the first keys
  int64_t num_biased = 0;
  float* out = nullptr;  // [H, d]
};

struct AttentionStepShape {
  int64_t num_heads = 0, num_kv_heads = 0, head = 0;  // row stride = 2 · G · d
};

// memory_attention for tokens of independent sequences, bit for bit, but with vectors over the keys
// and channels of one token in place of many tokens' queries.
void memory_attention_steps(const AttentionStepShape& shape, std::span<const AttentionStep> steps,
                            const ParallelFor& parallel);

}  // namespace bmojo::kernels
