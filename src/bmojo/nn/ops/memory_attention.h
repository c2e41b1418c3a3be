#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

// Shapes: T tokens, H query heads, G key/value heads, d head size, P pieces, Q queries a piece (the
// longest), S keys a piece, R pool rows.

namespace bmojo::nn {

// The queries of attention: runs of tokens that choose from one list of keys each. A token belongs
// to at most one run; the result is 0 for a token of none.
struct QueryRuns {
  struct Run {
    int64_t first, count;  // tokens [first, first + count)
  };
  QueryRuns() = default;
  QueryRuns(std::vector<Run> runs, int64_t num_tokens, at::Device device);

  std::vector<Run> runs;    // [P]
  int64_t num_tokens = 0;   // T
  int64_t max_queries = 0;  // Q
  at::Tensor token;         // [P * Q] of each query; T where a run is shorter than Q
  at::Tensor query;         // [T] of each token; P * Q where it has none
};

// Keys by piece: a row of the pool, and the queries [from, until) of the piece that see it.
struct KeyList {
  at::Tensor index, from, until;  // [P, S] int64
};

//   out_t = Σ_j a_tj v_j,   a_t = softmax over the visible keys of q_t·k_j / √d + bias_j
// One softmax over all memories; query head h reads key/value head floor(h G / H).
struct MemoryAttention {
  at::Tensor q;           // [T, H, d]
  at::Tensor pool;        // [R, 2, G, d] a key and its value
  at::Tensor bias;        // [P, m] for the first m keys of each piece; undefined: none
  const QueryRuns& runs;  //
  const KeyList& keys;    //
};

// [T, H, d]. Differentiable in q, pool and bias. One kernel on the CPU in fp32 that never has more
// than a tile of scores; the reference elsewhere.
at::Tensor memory_attention(const MemoryAttention& attention);
at::Tensor memory_attention_reference(const MemoryAttention& attention);

}  // namespace bmojo::nn
