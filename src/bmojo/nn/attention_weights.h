#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "bmojo/eval/observer.h"
#include "bmojo/nn/layout.h"

// Shapes: T tokens of a call, H query heads, G key/value heads, d head size, P pieces, S keys a
// piece, R pool rows, n keys that one token saw.

namespace bmojo::nn {

// What the attention of a layer was computed from, as MemoryAttention has it, and what came of it.
// The keys of a piece are eidetic, then fading, then those of the window.
struct AttentionTrace {
  at::Tensor q;            // [T, H, d]; undefined: not kept, or a layer without attention
  at::Tensor pool;         // [R, 2, G, d]
  at::Tensor bias;         // [P, m]; undefined: none
  KeyList keys;            // [P, S]
  at::Tensor eidetic;      // [P, m] positions of the eidetic keys; undefined: none
  int64_t num_fading = 0;  // fading keys a piece
  at::Tensor mixed;        // [T, H, d] Σ_j a_j v_j
};

using Memory = eval::MemoryKind;
using eval::SeenKey;

// What one token attended to, the keys in the order of the layer.
struct AttentionWeights {
  std::vector<SeenKey> keys;  // [n]
  at::Tensor weight;          // [H, n], of each head sums to 1
  at::Tensor value;           // [n, G, d]
};

// Of the token at `column` of `sequence`. The fused kernel never has these numbers at once: they
// are computed here, one token at a time, for people to look at.
AttentionWeights attention_weights(const AttentionTrace& in, const Layout& layout, int64_t sequence,
                                   int64_t column);

// [T, H, d]: what the keys of one memory add to `mixed`, of all tokens at once. The three parts sum
// to it.
at::Tensor attention_part(const AttentionTrace& in, const QueryRuns& runs, Memory memory);

// [T, H]: the share of its weight that each query gave to one memory. The three shares sum to 1.
at::Tensor attention_share(const AttentionTrace& in, const QueryRuns& runs, Memory memory);

}  // namespace bmojo::nn
