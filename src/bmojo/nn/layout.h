#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "bmojo/model/config.h"
#include "bmojo/nn/memory_attention.h"
#include "bmojo/nn/rotary.h"

// Shapes: B rows, L tokens a row, P pieces, Q queries a piece (the longest), S keys. Where an index
// into rows may point to nothing it is -1.

namespace bmojo::nn {

// Where each row stands between two calls: the position its next token takes in its document (the
// number of tokens read of it), and that document's id (kUnnamed where ids were not given). Empty
// before the first call.
inline constexpr int64_t kUnnamed = INT64_MIN;
struct Cursor {
  std::vector<int64_t> position;
  std::vector<int64_t> document;
};

// What a call brings, row by row. Empty lengths: every row is L long. Empty documents: every row
// goes on with the document it was in.
struct Rows {
  int64_t batch = 0;
  int64_t length = 0;
  std::vector<int64_t> lengths;    // [B], 0 … L; what follows is padding and enters no memory
  std::vector<int64_t> documents;  // [B * L]; a change of id starts a document
};

// A piece is a run of tokens of one row, one document and one chunk: its queries share the frozen
// memories. Pieces are the batch dimension of attention.
struct Piece {
  int64_t row, column, count;  // tokens [column, column + count) of the row
  int64_t position;            // of the first, in its document
  int64_t document_column;     // where the document begins in this call …
  int64_t document_position;   // … and the position it has there (> 0: it began in an earlier call)
  int64_t wave;                // this is the row's wave-th piece
};

// Keys of one memory; those of a piece stand at consecutive positions.
struct MemoryKeys : KeyList {
  std::vector<int64_t> oldest;  // [P] the position of a piece's first key; below 0 there is none
};

// Where every token of a call stands and which rows each memory is read from. Computed once a call
// and shared by all layers, the integers on the host: the tensors' values are never needed, so the
// layer runs on any device. Every index counts from the document's start (docs/model.md,
// Positions); where a row, a segment or a call begins has no influence.
struct Layout {
  // `like`: the device of all, and the type of what is computed here.
  Layout(const Config& config, const Rows& rows, const Cursor& cursor,
         const at::TensorOptions& like);

  int64_t batch, length;
  std::vector<Piece> pieces;   // by row, then time
  std::vector<int64_t> start;  // [B] the position of each row's next token before this call
  int64_t num_waves = 0;       // the most pieces of a row
  Cursor next;                 // the cursor after this call
  bool resets = false;         // a document starts behind tokens of another
  bool ragged = false;         // a row is shorter than the call

  int64_t window_rows_in = 0, window_rows_out = 0;  // of the incoming and the outgoing state
  int64_t fading_rows = 0;                          // of both
  int64_t eidetic_rows = 0;  // what the sets need: the longest document read, at most m_e

  at::Tensor positions;          // [B, L] of each token in its document; 0 on padding
  at::Tensor starts;             // [B, L] first token of a document
  Angles angles;                 // of `positions`; undefined without rotary encoding
  std::vector<int64_t> lengths;  // [B]

  QueryRuns queries;           // the pieces, over the tokens [B * L]
  at::Tensor query_positions;  // [P] of each piece's first query
  at::Tensor piece_row;        // [P]

  MemoryKeys window;        // into state [B * window_rows_in], then tokens [B * L]
  at::Tensor next_window;   // [B * window_rows_out] into the same
  MemoryKeys fading;        // into state [B * fading_rows], then projected tokens
  at::Tensor next_fading;   // [B * fading_rows] into the same
  at::Tensor fading_token;  // tokens to project, into [B * L]
};

}  // namespace bmojo::nn
