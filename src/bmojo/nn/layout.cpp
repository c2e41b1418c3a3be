#include "bmojo/nn/layout.h"

#include <torch/torch.h>

#include <algorithm>

#include "bmojo/memory/visibility.h"
#include "bmojo/nn/ops/rows.h"

namespace bmojo::nn {
namespace {

at::Tensor to_mask(const std::vector<uint8_t>& values, at::IntArrayRef shape, at::Device device) {
  auto* data = const_cast<uint8_t*>(values.data());
  return torch::from_blob(data, shape, torch::kBool).clone().to(device);
}

// Fills the keys of every piece: num_keys positions up to last(piece). `row(piece, p)` is the row
// of position p or -1, and seen_by(piece, p) are the queries that see it.
template <typename Last, typename Row, typename SeenBy>
MemoryKeys list_keys(const std::vector<Piece>& pieces, int64_t num_keys, at::Device device,
                     Last last, Row row, SeenBy seen_by) {
  const int64_t P = std::ssize(pieces);
  std::vector<int64_t> index(P * num_keys, -1), from(P * num_keys, 0), until(P * num_keys, 0);
  std::vector<int64_t> all_oldest;
  for (int64_t i = 0; i < P; ++i) {
    const auto& piece = pieces[i];
    const int64_t oldest = last(piece) - num_keys + 1;
    all_oldest.push_back(oldest);
    for (int64_t j = std::max<int64_t>(0, -oldest); j < num_keys; ++j) {
      const int64_t p = oldest + j, pool_row = row(piece, p);
      if (pool_row < 0) continue;
      const auto seen = seen_by(piece, p);
      const int64_t begin = seen.from - piece.position, at = i * num_keys + j;
      index[at] = pool_row;
      from[at] = std::max<int64_t>(0, begin);
      // Written so that an unlimited window does not overflow.
      until[at] = seen.count < piece.count - begin ? begin + seen.count : piece.count;
    }
  }
  const auto tensor = [&](const std::vector<int64_t>& values) {
    return from_host(values, device).reshape({P, num_keys});
  };
  return {{tensor(index), tensor(from), tensor(until)}, std::move(all_oldest)};
}

// Builds the parts of a Layout one after the other, over what they share.
struct Builder {
  const model::Config& config;
  const at::Device device;
  Layout& out;
  const int64_t B = out.batch, L = out.length;
  const int64_t w = memory::window_of(config.window);
  const std::vector<int64_t>& t0 = out.start;

  static int64_t longest(const std::vector<int64_t>& t) { return *std::ranges::max_element(t); }

  void queries();
  void window();
  void fading();
};

void Builder::queries() {
  std::vector<QueryRuns::Run> runs;
  std::vector<int64_t> positions, sequence;
  for (const auto& piece : out.pieces) {
    runs.push_back({piece.sequence * L + piece.column, piece.count});
    positions.push_back(piece.position);
    sequence.push_back(piece.sequence);
  }
  out.queries = QueryRuns(std::move(runs), B * L, device);
  out.query_positions = from_host(positions, device);
  out.piece_sequence = from_host(sequence, device);
}

// The last w tokens, or all of them.
void Builder::window() {
  const memory::WindowMemory memory{w};
  out.window_rows_in = memory.num_rows(longest(t0));
  out.window_rows_out = memory.num_rows(longest(out.next.position));
  const int64_t rows_in = out.window_rows_in, rows_out = out.window_rows_out;
  const auto row_of = [&](int64_t b, int64_t column, int64_t start, int64_t p) -> int64_t {
    if (p >= start) return B * rows_in + b * L + column + p - start;
    const int64_t row = p - (t0[b] - rows_in);
    return p >= 0 && row >= 0 ? b * rows_in + row : -1;
  };
  int64_t num_keys = 0;
  for (const auto& piece : out.pieces)
    num_keys = std::max(num_keys, memory.keys(piece.position, piece.count).count());
  out.window = list_keys(
      out.pieces, num_keys, device,
      [&](const Piece& piece) { return memory.keys(piece.position, piece.count).last; },
      [&](const Piece& piece, int64_t p) {
        return row_of(piece.sequence, piece.document_column, piece.document_position, p);
      },
      [&](const Piece&, int64_t p) { return memory.seen_by(p); });
  std::vector<int64_t> keep(B * rows_out, -1);
  for (int64_t b = 0; b < B; ++b)
    for (int64_t j = 0; j < rows_out; ++j) {
      const auto& document = out.last_document[b];
      const int64_t p = out.next.position[b] - rows_out + j;
      const int64_t row = row_of(b, document.column, document.position, p);
      if (p >= 0 && row >= 0) keep[b * rows_out + j] = row;
    }
  out.next_window = from_host(keep, device);
}

// Outputs of the SSM: the m_f before the chunk, or before the window.
void Builder::fading() {
  const int64_t m_f = config.fading_tokens, Q = out.queries.max_queries;
  const memory::FadingMemory kept{w, m_f, config.fading_sliding()};
  out.fading_rows = kept.num_rows();
  std::vector<int64_t> projected, pool_row(B * L, -1);
  for (int64_t i = 0; i < B * L; ++i)
    if (out.is_token[i] != 0 && kept.projects(out.token_position[i])) {
      pool_row[i] = B * kept.num_rows() + std::ssize(projected);
      projected.push_back(i);
    }
  out.fading_token = from_host(projected, device);
  const auto row_of = [&](int64_t b, int64_t column, int64_t start, int64_t p) {
    return p >= start ? pool_row[b * L + column + p - start]
                      : b * kept.num_rows() + kept.row_of(p, t0[b]);
  };
  out.fading = list_keys(
      out.pieces, kept.sliding ? m_f + Q - 1 : m_f, device,
      // As many keys for each piece as the longest needs.
      [&](const Piece& piece) { return kept.keys(piece.position, Q).last; },
      [&](const Piece& piece, int64_t p) -> int64_t {
        if (p > kept.keys(piece.position, piece.count).last) return -1;
        return row_of(piece.sequence, piece.document_column, piece.document_position, p);
      },
      [&](const Piece& piece, int64_t p) { return kept.seen_by(p, piece.position); });
  std::vector<int64_t> keep(B * kept.num_rows(), -1);
  for (int64_t b = 0; b < B; ++b)
    for (int64_t j = 0; j < kept.num_rows(); ++j) {
      const auto& document = out.last_document[b];
      const int64_t p = kept.position_of(j, out.next.position[b]);
      if (p >= 0) keep[b * kept.num_rows() + j] = row_of(b, document.column, document.position, p);
    }
  out.next_fading = from_host(keep, device);
}

}  // namespace

Layout::Layout(const model::Config& config, const Sequences& sequences, const Cursor& cursor,
               const at::TensorOptions& like)
    : memory::Pieces(memory::cut_into_pieces(sequences, cursor, memory::window_of(config.window))) {
  const auto device = like.device();
  positions = from_host(token_position, device).reshape({batch, length});
  starts = to_mask(is_first, {batch, length}, device);
  if (!config.has_attention()) return;
  if (config.rope_theta > 0)
    angles = rotary_angles(positions, config.head_size, config.rope_theta,
                           at::typeMetaToScalarType(like.dtype()));
  Builder builder{config, device, *this};
  builder.queries();
  builder.window();
  if (!config.has(model::LayerKind::bmojo)) return;
  if (config.fading_tokens > 0) builder.fading();
  int64_t longest = 0;
  for (const auto& piece : pieces) longest = std::max(longest, piece.position + piece.count);
  eidetic_rows = std::min(config.eidetic_tokens, longest);
}

}  // namespace bmojo::nn
