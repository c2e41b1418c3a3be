#include "bmojo/memory/pieces.h"

#include <algorithm>

#include "bmojo/base/error.h"

namespace bmojo::memory {
namespace {

void check(const Sequences& sequences, const Cursor& cursor) {
  const auto B = sequences.batch, L = sequences.length;
  const auto& lengths = sequences.lengths;
  base::require(B >= 1 && L >= 1,
                "forward: tokens must be [B, L] with B and L at least 1, got [{}, {}]", B, L);
  base::require(lengths.empty() || std::ranges::any_of(lengths, [](auto n) { return n > 0; }),
                "forward: at least one sequence must have a token, got none");
  base::require(lengths.empty() || std::ssize(lengths) == B,
                "forward: lengths must have one entry a sequence = {}, got {}", B, lengths.size());
  for (const auto length : lengths)
    base::require(length >= 0 && length <= L, "forward: lengths must be from 0 to {}, got {}", L,
                  length);
  base::require(sequences.documents.empty() || std::ssize(sequences.documents) == B * L,
                "forward: documents must be [{}, {}], got {} entries", B, L,
                sequences.documents.size());
  base::require(cursor.position.empty() || std::ssize(cursor.position) == B,
                "forward: state must have {} sequences, got {}", B, cursor.position.size());
  for (size_t b = 0; !sequences.documents.empty() && b < cursor.position.size(); ++b)
    base::require(
        cursor.position[b] == 0 || cursor.document[b] != kUnnamed,
        "forward: documents must be given from a sequence's first token on, got them after {}",
        cursor.position[b]);
}

std::vector<Document> split_documents(const Sequences& sequences, const Cursor& cursor,
                                      int64_t sequence, int64_t length) {
  const bool continued = !cursor.position.empty() && cursor.position[sequence] > 0;
  std::vector<Document> documents;
  for (int64_t i = 0; i < length; ++i) {
    const auto id = [&](int64_t column) {
      return sequences.documents[sequence * sequences.length + column];
    };
    const bool first = i == 0;
    bool starts = first && !continued;
    if (!sequences.documents.empty() && !starts)
      starts = id(i) != (first ? cursor.document[sequence] : id(i - 1));
    if (first || starts) documents.push_back({i, i, starts ? 0 : cursor.position[sequence]});
    documents.back().end = i + 1;
  }
  return documents;
}

void cut(Pieces& out, int64_t sequence, const Document& document, int64_t window, int64_t& wave) {
  for (int64_t i = document.column; i < document.end;) {
    const int64_t p = document.position + i - document.column;
    const int64_t count = piece_length(p, document.end - i, window);
    out.pieces.push_back({sequence, i, count, p, document.column, document.position, wave++});
    i += count;
  }
}

}  // namespace

Pieces cut_into_pieces(const Sequences& sequences, const Cursor& cursor, int64_t window) {
  check(sequences, cursor);
  const int64_t B = sequences.batch, L = sequences.length;
  Pieces out;
  out.batch = B;
  out.length = L;
  out.token_position.assign(B * L, 0);
  out.is_token.assign(B * L, 0);
  out.is_first.assign(B * L, 0);
  out.last_document.resize(B);
  out.lengths = sequences.lengths;
  out.next = cursor;
  if (out.lengths.empty()) out.lengths.assign(B, L);
  if (out.next.position.empty())
    out.next = {std::vector<int64_t>(B, 0), std::vector<int64_t>(B, kUnnamed)};
  out.ragged = std::ranges::any_of(out.lengths, [&](int64_t n) { return n < L; });
  out.start = out.next.position;
  for (int64_t b = 0; b < B; ++b) {
    int64_t wave = 0;
    out.last_document[b] = {0, 0, out.start[b]};
    for (const auto& document : split_documents(sequences, cursor, b, out.lengths[b])) {
      for (int64_t i = document.column; i < document.end; ++i) {
        out.token_position[b * L + i] = document.position + i - document.column;
        out.is_token[b * L + i] = 1;
      }
      const bool starts = document.position == 0;
      out.is_first[b * L + document.column] = starts;
      out.resets |= starts && (document.column > 0 || out.start[b] > 0);
      cut(out, b, document, window, wave);
      out.last_document[b] = document;
      out.next.position[b] = document.position + document.end - document.column;
    }
    if (out.lengths[b] > 0 && !sequences.documents.empty())
      out.next.document[b] = sequences.documents[b * L + out.lengths[b] - 1];
    out.num_waves = std::max(out.num_waves, wave);
  }
  return out;
}

}  // namespace bmojo::memory
