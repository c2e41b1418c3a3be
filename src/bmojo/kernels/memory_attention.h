#pragma once

#include <cstdint>

#include "bmojo/kernels/parallel.h"

// Shapes: T tokens, H query heads, G key/value heads, r = H / G, d head size, P pieces, S keys a
// piece, R pool rows. All arrays are dense but for q.

namespace bmojo::kernels {

// A run of tokens whose queries choose from one list of keys.
struct QueryRun {
  int64_t first, count;  // tokens [first, first + count)
};

// out_t = Σ_j a_tj v_j,  a_t = softmax over the visible keys j of (q_t·k_j / √d + bias_j)
// Query n of piece p sees key j where from[p, j] ≤ n < until[p, j]; query head h reads key/value
// head floor(h / r). Every query sees at least one key.
struct MemoryAttention {
  int64_t num_pieces = 0, num_keys = 0, num_heads = 0, num_kv_heads = 0, head = 0;
  const QueryRun* pieces = nullptr;  // [P]; each token in one of them
  const float* q = nullptr;          // [T, H, d], rows of H d numbers q_stride apart
  int64_t q_stride = 0;
  const float* pool = nullptr;     // [R, 2, G, d] a key and its value
  const int64_t* index = nullptr;  // [P, S] into the pool
  const int64_t* from = nullptr;   // [P, S]
  const int64_t* until = nullptr;  // [P, S]
  const float* bias = nullptr;     // [P, num_biased] of a piece's first keys
  int64_t num_biased = 0;
};

// out [T, H, d]; log_sum [T, H] = ln Σ exp(score), for the backward pass; null: none will follow.
// Tokens of no piece are left as they are.
void memory_attention(const MemoryAttention& m, float* out, float* log_sum,
                      const ParallelFor& parallel);

// Gradients of a loss whose gradient to out is grad_out [T, H, d].
struct MemoryAttentionGradients {
  float* q;     // [T, H, d]
  float* pool;  // [R, 2, G, d], added to
  float* bias;  // [P, num_biased], or null
};
void memory_attention_backward(const MemoryAttention& m, const float* out, const float* log_sum,
                               const float* grad_out, const MemoryAttentionGradients& gradients,
                               const ParallelFor& parallel);

}  // namespace bmojo::kernels
