#pragma once

#include <algorithm>
#include <cstdint>

#include "bmojo/memory/pieces.h"

// Who sees what, in positions of one document (docs/model.md, What a query sees). Where a row lies
// is up to each engine.

namespace bmojo::memory {

// Positions [first, last]; none where last < first.
struct Span {
  int64_t first, last;
  int64_t count() const { return std::max<int64_t>(0, last - first + 1); }
};

// The query positions [from, from + count) that see a key.
struct SeenBy {
  int64_t from, count;
};

// Short-term memory: a query at t sees (t - w, t].
struct WindowMemory {
  int64_t w;  // kUnlimited: all

  // What some query of [position, position + count) sees.
  Span keys(int64_t position, int64_t count) const {
    return {position < w ? 0 : position - w + 1, position + count - 1};
  }
  SeenBy seen_by(int64_t p) const { return {p, w}; }
  int64_t num_rows(int64_t t) const { return std::min(w, t); }  // carried before position t
};

// Fading memory: outputs of the SSM at the m_f positions before the chunk (`chunk`), or before the
// window (`sliding`). What is carried at position t: `sliding` the last w + m_f - 1 rows; `chunk`
// the m_f before the chunk, then those of the chunk's last min(m_f, w) positions that were read.
struct FadingMemory {
  int64_t w, m_f;
  bool sliding;

  int64_t collected() const { return std::min(m_f, w); }
  int64_t num_rows() const { return m_f == 0 ? 0 : sliding ? w + m_f - 1 : m_f + collected(); }
  // Whether a token at position p is ever a fading key.
  bool projects(int64_t p) const { return m_f > 0 && (sliding || p % w >= w - collected()); }

  // What some query of a piece sees. Positions below 0 hold nothing.
  Span keys(int64_t position, int64_t count) const {
    if (sliding) return {position - w - m_f + 1, position + count - 1 - w};
    const int64_t s = position / w * w;
    return {s - m_f, s - 1};
  }
  // `chunk` keys are seen by the whole chunk that `position` is in; a `sliding` key by the m_f
  // queries from p + w on.
  SeenBy seen_by(int64_t p, int64_t position) const {
    return sliding ? SeenBy{p + w, m_f} : SeenBy{position, w};
  }

  // Which position a carried row has when the next token is t, or below 0; and the way back.
  int64_t position_of(int64_t row, int64_t t) const {
    if (sliding) return t - num_rows() + row;
    const int64_t s = t / w * w;
    if (row < m_f) return s - m_f + row;
    const int64_t p = s + w - collected() + row - m_f;
    return p < t ? p : -1;
  }
  int64_t row_of(int64_t p, int64_t t) const {
    if (sliding) return p - (t - num_rows());
    const int64_t s = t / w * w;
    return p < s ? p - (s - m_f) : m_f + p - (s + w - collected());
  }
};

// Long-term memory: a member at p is hidden while the window shows it.
struct EideticMemory {
  int64_t w;

  // The first query that sees the member at p outside its window; of one position or a tensor.
  template <typename Position>
  Position seen_from(const Position& p) const {
    return p + w;
  }
  // After t tokens: the set was frozen when the first token of the last one's chunk was read, so
  // its members lie before that position.
  int64_t frozen_before(int64_t t) const { return std::max<int64_t>(0, t - 1) / w * w; }
};

}  // namespace bmojo::memory
