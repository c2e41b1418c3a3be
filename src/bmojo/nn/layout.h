#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "bmojo/memory/pieces.h"
#include "bmojo/model/config.h"
#include "bmojo/nn/ops/memory_attention.h"
#include "bmojo/nn/ops/rotary.h"

// Shapes: B sequences, L tokens each, P pieces, Q queries a piece (the longest), S keys. Where an
// index into rows may point to nothing it is -1.

namespace bmojo::nn {

using memory::Cursor;
using memory::kUnnamed;
using memory::Piece;
using memory::Sequences;

// Keys of one memory; those of a piece stand at consecutive positions.
struct MemoryKeys : KeyList {
  std::vector<int64_t> oldest;  // [P] the position of a piece's first key; below 0 there is none
};

// Where every token of a call stands and, as tensors, which rows each memory is read from. Computed
// once a call and shared by all layers, the integers on the host: the tensors' values are never
// needed, so the layer runs on any device.
struct Layout : memory::Pieces {
  // `like`: the device of all, and the type of what is computed here.
  Layout(const model::Config& config, const Sequences& sequences, const Cursor& cursor,
         const at::TensorOptions& like);

  int64_t window_rows_in = 0, window_rows_out = 0;  // of the incoming and the outgoing state
  int64_t fading_rows = 0;                          // of both
  int64_t eidetic_rows = 0;  // what the sets need: the longest document read, at most m_e

  at::Tensor positions;  // [B, L] of each token in its document; 0 on padding
  at::Tensor starts;     // [B, L] first token of a document
  Angles angles;         // of `positions`; undefined without rotary encoding

  QueryRuns queries;           // the pieces, over the tokens [B * L]
  at::Tensor query_positions;  // [P] of each piece's first query
  at::Tensor piece_sequence;   // [P]

  MemoryKeys window;        // into state [B * window_rows_in], then tokens [B * L]
  at::Tensor next_window;   // [B * window_rows_out] into the same
  MemoryKeys fading;        // into state [B * fading_rows], then projected tokens
  at::Tensor next_fading;   // [B * fading_rows] into the same
  at::Tensor fading_token;  // tokens to project, into [B * L]
};

}  // namespace bmojo::nn
