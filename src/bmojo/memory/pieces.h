#pragma once

#include <cstdint>
#include <vector>

// Where the tokens of a call stand. Every position counts from the start of its document
// (docs/model.md, Positions); where a call begins has no influence. Shapes: B sequences, L tokens.

namespace bmojo::memory {

// A window without an end: full causal attention.
inline constexpr int64_t kUnlimited = INT64_MAX;
inline constexpr int64_t window_of(int64_t configured) {
  return configured > 0 ? configured : kUnlimited;
}

// Where each sequence stands between two calls: the position its next token takes in its document
// (the number of tokens read of it), and that document's id (kUnnamed where ids were not given).
// Empty before the first call.
inline constexpr int64_t kUnnamed = INT64_MIN;
struct Cursor {
  std::vector<int64_t> position;
  std::vector<int64_t> document;
};

// What a call brings. Empty lengths: every sequence is L long. Empty documents: every sequence goes
// on with the document it was in.
struct Sequences {
  int64_t batch = 0;
  int64_t length = 0;
  std::vector<int64_t> lengths;    // [B], 0 … L; what follows is padding and enters no memory
  std::vector<int64_t> documents;  // [B * L]; a change of id starts a document
};

// A piece is a run of tokens of one sequence, one document and one chunk: its queries share the
// frozen memories. Pieces are the batch dimension of attention.
struct Piece {
  int64_t sequence, column, count;  // tokens [column, column + count) of it
  int64_t position;                 // of the first, in its document
  int64_t document_column;          // where the document begins in this call …
  int64_t document_position;  // … and the position it has there (> 0: it began in an earlier call)
  int64_t wave;               // this is the sequence's wave-th piece

  bool begins_document() const { return position == 0; }
};

// Tokens of [position, position + available) before the next border of chunks.
inline int64_t piece_length(int64_t position, int64_t available, int64_t window) {
  return available < window - position % window ? available : window - position % window;
}
inline bool begins_chunk(int64_t position, int64_t window) { return position % window == 0; }

// A span of one document inside a sequence of a call.
struct Document {
  int64_t column, end, position;
};

struct Pieces {
  int64_t batch = 0, length = 0;
  std::vector<Piece> pieces;            // by sequence, then time
  std::vector<int64_t> token_position;  // [B * L] of each token in its document; 0 on padding
  std::vector<uint8_t> is_token;        // [B * L] not padding
  std::vector<uint8_t> is_first;        // [B * L] the first token of a document
  std::vector<Document> last_document;  // [B] the one each sequence ends in
  std::vector<int64_t> lengths;         // [B]
  std::vector<int64_t> start;           // [B] the position of the next token before this call
  Cursor next;                          // the cursor after this call
  int64_t num_waves = 0;                // the most pieces of a sequence
  bool resets = false;                  // a document starts behind tokens of another
  bool ragged = false;                  // a sequence is shorter than the call
};

// Cuts what a call brings at the borders of documents and chunks, which lie at multiples of the
// window from a document's start. Errors start with `forward: `.
Pieces cut_into_pieces(const Sequences& sequences, const Cursor& cursor, int64_t window);

}  // namespace bmojo::memory
