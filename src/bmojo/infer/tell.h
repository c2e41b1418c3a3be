#pragma once

#include "bmojo/infer/layer.h"

// What an observer is told of a layer. Nothing here runs where nobody asks.

namespace bmojo::infer {

// After the pieces of a call were read: ε of their tokens, what they saw, and what is kept.
void tell_pieces(const Call& call, const MemoryShape& shape);

// Before they are remembered: what the asked ones of their tokens attend to. The kernels never have
// these weights at once: they are computed again, one token at a time, from the rows it sees.
// q [T, H d], turned.
void tell_attention(const Call& call, const PackedLayer& weights, const MemoryShape& shape,
                    const float* q);

}  // namespace bmojo::infer
