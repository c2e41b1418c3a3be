#include "bmojo/nn/layout.h"

#include <torch/torch.h>

#include <algorithm>
#include <limits>

#include "bmojo/base/error.h"
#include "bmojo/nn/rows.h"

namespace bmojo::nn {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

at::Tensor to_mask(const std::vector<uint8_t>& values, at::IntArrayRef shape, at::Device device) {
  auto* data = const_cast<uint8_t*>(values.data());
  return torch::from_blob(data, shape, torch::kBool).clone().to(device);
}

void check(const Rows& rows, const Cursor& cursor) {
  const auto B = rows.batch, L = rows.length;
  require(B >= 1 && L >= 1, "forward: tokens must be [B, L] with B and L at least 1, got [{}, {}]",
          B, L);
  require(rows.lengths.empty() || std::ranges::any_of(rows.lengths, [](auto n) { return n > 0; }),
          "forward: at least one row must have a token, got none");
  require(rows.lengths.empty() || std::ssize(rows.lengths) == B,
          "forward: lengths must have one entry a row = {}, got {}", B, rows.lengths.size());
  for (const auto length : rows.lengths)
    require(length >= 0 && length <= L, "forward: lengths must be from 0 to {}, got {}", L, length);
  require(rows.documents.empty() || std::ssize(rows.documents) == B * L,
          "forward: documents must be [{}, {}], got {} entries", B, L, rows.documents.size());
  require(cursor.position.empty() || std::ssize(cursor.position) == B,
          "forward: state must have {} rows, got {}", B, cursor.position.size());
  for (size_t b = 0; !rows.documents.empty() && b < cursor.position.size(); ++b)
    require(cursor.position[b] == 0 || cursor.document[b] != kUnnamed,
            "forward: documents must be given from a row's first token on, got them after {}",
            cursor.position[b]);
}

// A span of one document inside a row of this call.
struct Document {
  int64_t column, end, position;
};

std::vector<Document> split_documents(const Rows& rows, const Cursor& cursor, int64_t row,
                                      int64_t length) {
  const bool continued = !cursor.position.empty() && cursor.position[row] > 0;
  std::vector<Document> documents;
  for (int64_t i = 0; i < length; ++i) {
    const auto id = [&](int64_t column) { return rows.documents[row * rows.length + column]; };
    const bool first = i == 0;
    bool starts = first && !continued;
    if (!rows.documents.empty() && !starts)
      starts = id(i) != (first ? cursor.document[row] : id(i - 1));
    if (first || starts) documents.push_back({i, i, starts ? 0 : cursor.position[row]});
    documents.back().end = i + 1;
  }
  return documents;
}

// The fading rows of a state whose next token has position t: which row holds position p, or -1.
// `sliding` keeps the last w + m_f - 1. `chunk` keeps the m_f before the chunk, then those of the
// chunk's last min(m_f, w) positions that have been read.
struct FadingRows {
  int64_t w, m_f;
  bool sliding;

  int64_t collected() const { return std::min(m_f, w); }
  int64_t count() const { return m_f == 0 ? 0 : sliding ? w + m_f - 1 : m_f + collected(); }
  // Whether a token at position p is ever a fading key.
  bool projects(int64_t p) const { return m_f > 0 && (sliding || p % w >= w - collected()); }

  int64_t position_of(int64_t row, int64_t t) const {
    if (sliding) return t - count() + row;
    const int64_t s = t / w * w;
    if (row < m_f) return s - m_f + row;
    const int64_t p = s + w - collected() + row - m_f;
    return p < t ? p : -1;
  }
  int64_t row_of(int64_t p, int64_t t) const {
    if (sliding) return p - (t - count());
    const int64_t s = t / w * w;
    return p < s ? p - (s - m_f) : m_f + p - (s + w - collected());
  }
};

// Fills the keys of every piece: num_keys positions up to last(piece). `row(piece, p)` is the row
// of position p or -1, and [first(p), first(p) + seen) are the query positions that see it.
template <typename Last, typename Row, typename First>
MemoryKeys list_keys(const std::vector<Piece>& pieces, int64_t num_keys, at::Device device,
                     Last last, Row row, First first, int64_t seen) {
  const int64_t P = std::ssize(pieces);
  std::vector<int64_t> index(P * num_keys, -1), from(P * num_keys, 0), until(P * num_keys, 0);
  std::vector<int64_t> all_oldest;
  for (int64_t i = 0; i < P; ++i) {
    const auto& piece = pieces[i];
    const int64_t oldest = last(piece) - num_keys + 1;
    all_oldest.push_back(oldest);
    for (int64_t j = std::max<int64_t>(0, -oldest); j < num_keys; ++j) {
      const int64_t p = oldest + j, found = row(piece, p);
      if (found < 0) continue;
      const int64_t begin = first(piece, p) - piece.position, at = i * num_keys + j;
      index[at] = found;
      from[at] = std::max<int64_t>(0, begin);
      // Written so that an unlimited window does not overflow.
      until[at] = seen < piece.count - begin ? begin + seen : piece.count;
    }
  }
  const auto tensor = [&](const std::vector<int64_t>& values) {
    return from_host(values, device).reshape({P, num_keys});
  };
  return {{tensor(index), tensor(from), tensor(until)}, std::move(all_oldest)};
}

// Builds the parts of a Layout one after the other, over what they share.
struct Builder {
  const Config& config;
  const Rows& rows;
  const Cursor& cursor;
  const at::Device device;
  Layout& out;
  const int64_t B = out.batch, L = out.length;
  const int64_t w = config.window > 0 ? config.window : kUnlimited;
  const std::vector<int64_t>& t0 = out.start;
  std::vector<int64_t> position = std::vector<int64_t>(B * L, 0);
  std::vector<uint8_t> valid = std::vector<uint8_t>(B * L, 0);
  std::vector<Document> last_document = std::vector<Document>(B);

  static int64_t longest(const std::vector<int64_t>& t) { return *std::ranges::max_element(t); }

  void tokens();
  void cut(int64_t row, const Document& document, int64_t& wave);
  void queries();
  void window();
  void fading();
};

void Builder::tokens() {
  std::vector<uint8_t> starts(B * L, 0);
  for (int64_t b = 0; b < B; ++b) {
    int64_t wave = 0;
    last_document[b] = {0, 0, t0[b]};
    for (const auto& document : split_documents(rows, cursor, b, out.lengths[b])) {
      for (int64_t i = document.column; i < document.end; ++i) {
        position[b * L + i] = document.position + i - document.column;
        valid[b * L + i] = 1;
      }
      starts[b * L + document.column] = document.position == 0;
      out.resets |= document.position == 0 && (document.column > 0 || t0[b] > 0);
      cut(b, document, wave);
      last_document[b] = document;
      out.next.position[b] = document.position + document.end - document.column;
    }
    if (out.lengths[b] > 0 && !rows.documents.empty())
      out.next.document[b] = rows.documents[b * L + out.lengths[b] - 1];
    out.num_waves = std::max(out.num_waves, wave);
  }
  out.positions = from_host(position, device).reshape({B, L});
  out.starts = to_mask(starts, {B, L}, device);
}

// Cuts a document at the chunk borders, which lie at multiples of w from its start.
void Builder::cut(int64_t row, const Document& document, int64_t& wave) {
  for (int64_t i = document.column; i < document.end;) {
    const int64_t p = position[row * L + i];
    const int64_t count = std::min(document.end - i, w - p % w);
    out.pieces.push_back({row, i, count, p, document.column, document.position, wave++});
    i += count;
  }
}

void Builder::queries() {
  std::vector<QueryRuns::Run> runs;
  std::vector<int64_t> positions, row;
  for (const auto& piece : out.pieces) {
    runs.push_back({piece.row * L + piece.column, piece.count});
    positions.push_back(piece.position);
    row.push_back(piece.row);
  }
  out.queries = QueryRuns(std::move(runs), B * L, device);
  out.query_positions = from_host(positions, device);
  out.piece_row = from_host(row, device);
}

// The last w tokens, or all of them.
void Builder::window() {
  out.window_rows_in = std::min(w, longest(t0));
  out.window_rows_out = std::min(w, longest(out.next.position));
  const int64_t rows_in = out.window_rows_in, rows_out = out.window_rows_out;
  const auto row_of = [&](int64_t b, int64_t column, int64_t start, int64_t p) -> int64_t {
    if (p >= start) return B * rows_in + b * L + column + p - start;
    const int64_t row = p - (t0[b] - rows_in);
    return p >= 0 && row >= 0 ? b * rows_in + row : -1;
  };
  int64_t num_keys = 0;
  for (const auto& piece : out.pieces)
    num_keys = std::max(num_keys, std::min(w - 1, piece.position) + piece.count);
  out.window = list_keys(
      out.pieces, num_keys, device,
      [](const Piece& piece) { return piece.position + piece.count - 1; },
      [&](const Piece& piece, int64_t p) {
        return row_of(piece.row, piece.document_column, piece.document_position, p);
      },
      [](const Piece&, int64_t p) { return p; }, w);
  std::vector<int64_t> keep(B * rows_out, -1);
  for (int64_t b = 0; b < B; ++b)
    for (int64_t j = 0; j < rows_out; ++j) {
      const auto& document = last_document[b];
      const int64_t p = out.next.position[b] - rows_out + j;
      const int64_t row = row_of(b, document.column, document.position, p);
      if (p >= 0 && row >= 0) keep[b * rows_out + j] = row;
    }
  out.next_window = from_host(keep, device);
}

// Outputs of the SSM: the m_f before the chunk, or before the window.
void Builder::fading() {
  const int64_t m_f = config.fading_tokens, Q = out.queries.max_queries;
  const FadingRows kept{w, m_f, config.fading_sliding()};
  out.fading_rows = kept.count();
  std::vector<int64_t> projected, pool_row(B * L, -1);
  for (int64_t i = 0; i < B * L; ++i)
    if (valid[i] && kept.projects(position[i])) {
      pool_row[i] = B * kept.count() + std::ssize(projected);
      projected.push_back(i);
    }
  out.fading_token = from_host(projected, device);
  const auto row_of = [&](int64_t b, int64_t column, int64_t start, int64_t p) {
    return p >= start ? pool_row[b * L + column + p - start]
                      : b * kept.count() + kept.row_of(p, t0[b]);
  };
  // `chunk` keys are seen by the whole chunk; a `sliding` key by the m_f queries from p + w on.
  out.fading = list_keys(
      out.pieces, kept.sliding ? m_f + Q - 1 : m_f, device,
      [&](const Piece& piece) {
        return kept.sliding ? piece.position + Q - 1 - w : piece.position / w * w - 1;
      },
      [&](const Piece& piece, int64_t p) -> int64_t {
        if (kept.sliding && p > piece.position + piece.count - 1 - w) return -1;
        return row_of(piece.row, piece.document_column, piece.document_position, p);
      },
      [&](const Piece& piece, int64_t p) { return kept.sliding ? p + w : piece.position; },
      kept.sliding ? m_f : w);
  std::vector<int64_t> keep(B * kept.count(), -1);
  for (int64_t b = 0; b < B; ++b)
    for (int64_t j = 0; j < kept.count(); ++j) {
      const auto& document = last_document[b];
      const int64_t p = kept.position_of(j, out.next.position[b]);
      if (p >= 0) keep[b * kept.count() + j] = row_of(b, document.column, document.position, p);
    }
  out.next_fading = from_host(keep, device);
}

}  // namespace

Layout::Layout(const Config& config, const Rows& rows, const Cursor& cursor,
               const at::TensorOptions& like)
    : batch(rows.batch), length(rows.length), next(cursor), lengths(rows.lengths) {
  check(rows, cursor);
  if (lengths.empty()) lengths.assign(batch, length);
  if (next.position.empty())
    next = {std::vector<int64_t>(batch, 0), std::vector<int64_t>(batch, kUnnamed)};
  ragged = std::ranges::any_of(lengths, [&](int64_t n) { return n < length; });
  start = next.position;
  Builder builder{config, rows, cursor, like.device(), *this};
  builder.tokens();
  if (!config.has_attention()) return;
  if (config.rope_theta > 0)
    angles = rotary_angles(positions, config.head_size, config.rope_theta,
                           at::typeMetaToScalarType(like.dtype()));
  builder.queries();
  builder.window();
  if (!config.has(LayerKind::bmojo)) return;
  if (config.fading_tokens > 0) builder.fading();
  int64_t longest = 0;
  for (const auto& piece : pieces) longest = std::max(longest, piece.position + piece.count);
  eidetic_rows = std::min(config.eidetic_tokens, longest);
}

}  // namespace bmojo::nn
