#include "bmojo/kernels/memory_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "bmojo/kernels/cpu.h"
#include "bmojo/kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bmojo/kernels/memory_attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "bmojo/kernels/row-inl.h"
#include "bmojo/kernels/tile-inl.h"

// Vectors run over query rows (a query of one head), so that a softmax is a loop over keys without
// any sum across lanes. A tile is kTile query rows of one piece and one key/value head, with all
// the keys that any of them sees; its scores are [keys, kTile]. Keys are taken a block at a time,
// while the block is in the cache; the forward pass keeps the scores of all, since their maximum
// must be known before the first weight, the backward pass those of a block. Sums run over keys and
// over the head size in order, from block to block in the same accumulators: they depend on neither
// tile nor block, so whole, segments and steps agree in every bit.

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {
namespace {

constexpr int64_t kBlock = 96;  // keys

// Calls work(first, count) for the blocks of [0, num_keys).
template <typename Work>
void in_blocks(int64_t num_keys, const Work& work) {
  for (int64_t k = 0; k < num_keys; k += kBlock) work(k, std::min(kBlock, num_keys - k));
}

// Row n of a piece is query n / r, head g r + n % r.
struct Tile {
  const MemoryAttention& m;
  int64_t piece, group, first, count;  // rows [first, first + count)

  int64_t ratio() const { return m.num_heads / m.num_kv_heads; }
  int64_t query(int64_t n) const { return (first + n) / ratio(); }
  int64_t head(int64_t n) const { return group * ratio() + (first + n) % ratio(); }
  int64_t token(int64_t n) const { return m.pieces[piece].first + query(n); }
  // Of [T, H, d] and of [T, H].
  int64_t offset(int64_t n) const { return (token(n) * m.num_heads + head(n)) * m.head; }
  int64_t scalar(int64_t n) const { return token(n) * m.num_heads + head(n); }
  const float* q(int64_t n) const { return m.q + token(n) * m.q_stride + head(n) * m.head; }
  int64_t panels() const { return (count + kPanel - 1) / kPanel; }
};

int64_t num_tiles(const MemoryAttention& m, int64_t piece) {
  return (m.pieces[piece].count * (m.num_heads / m.num_kv_heads) + kTile - 1) / kTile;
}

Tile make_tile(const MemoryAttention& m, int64_t piece, int64_t group, int64_t i) {
  const int64_t rows = m.pieces[piece].count * (m.num_heads / m.num_kv_heads);
  return {m, piece, group, i * kTile, std::min(kTile, rows - i * kTile)};
}

// A task is tiles [first, last) of one piece and one key/value head, in order.
struct Span {
  int64_t piece, group, first, last;
};

std::vector<Span> cut(const MemoryAttention& m, int64_t most_tiles) {
  std::vector<Span> spans;
  for (int64_t piece = 0; piece < m.num_pieces; ++piece)
    for (int64_t group = 0; group < m.num_kv_heads; ++group)
      for (int64_t i = 0; i < num_tiles(m, piece); i += most_tiles)
        spans.push_back({piece, group, i, std::min(num_tiles(m, piece), i + most_tiles)});
  return spans;
}

// Where queries see all keys before them the last spans are the longest: they begin.
int64_t last_first(const std::vector<Span>& spans, int64_t task) {
  return std::ssize(spans) - 1 - task;
}

int64_t in_panels(int64_t n) { return (n + kPanel - 1) / kPanel * kPanel; }

// What a task keeps from tile to tile.
struct Workspace {
  Workspace(const MemoryAttention& m, const Span& span, int64_t scores_at_once)
      : q(scratch(m.head * kTile)),
        result(scratch(m.head * kTile)),
        scores(scratch(scores_at_once * kTile)),
        slots(static_cast<size_t>(m.num_keys)),
        keys(static_cast<size_t>(m.num_keys)),
        values(static_cast<size_t>(m.num_keys)) {
    if (span.last - span.first > 1) pack(m, span);
  }
  void pack(const MemoryAttention& m, const Span& span);

  Scratch q;       // [d, kTile] q transposed
  Scratch result;  // [d, kTile]
  Scratch scores;  // [keys or kBlock, kTile]
  Scratch packed;  // [S, 2, d] keys and values of the span's head; null where one tile reads them
  HWY_ALIGN float query[kTile], largest[kTile], sum[kTile];
  int64_t num_keys = 0;  // that the tile sees
  std::vector<int64_t> slots;
  std::vector<const float*> keys, values;
};

// Whether some query of [low, high] sees key j of a piece.
bool sees(const MemoryAttention& m, int64_t piece, int64_t j, int64_t low, int64_t high) {
  const int64_t from = m.from[piece * m.num_keys + j], until = m.until[piece * m.num_keys + j];
  return from <= high && until > low && until > from;
}

const float* pool_row(const MemoryAttention& m, int64_t piece, int64_t j, int64_t group) {
  return m.pool + (m.index[piece * m.num_keys + j] * 2 * m.num_kv_heads + group) * m.head;
}

// In the pool the keys of one head lie a whole row apart, often a power of two: they would compete
// for few sets of the cache and be read from memory for every tile.
void Workspace::pack(const MemoryAttention& m, const Span& span) {
  packed = scratch(m.num_keys * 2 * m.head);
  const Tile first = make_tile(m, span.piece, span.group, span.first),
             last = make_tile(m, span.piece, span.group, span.last - 1);
  for (int64_t j = 0; j < m.num_keys; ++j) {
    if (!sees(m, span.piece, j, first.query(0), last.query(last.count - 1))) continue;
    const float* row = pool_row(m, span.piece, j, span.group);
    float* to = packed.get() + 2 * j * m.head;
    std::copy_n(row, m.head, to);
    std::copy_n(row + m.num_kv_heads * m.head, m.head, to + m.head);
  }
}

// to [d, kTile], the columns of which are rows at(n) [d]; lanes without a query are 0.
template <typename At>
void rows_to_columns(const Tile& tile, const At& at, float* HWY_RESTRICT to) {
  const hn::FixedTag<float, 8> eight;
  const int64_t d = tile.m.head;
  if (tile.count < kTile) std::fill_n(to, d * kTile, 0.0f);
  int64_t n = 0;
  for (; n + 8 <= tile.count; n += 8) {
    const float* rows[8];
    for (int64_t j = 0; j < 8; ++j) rows[j] = at(n + j);
    int64_t i = 0;
    for (; i + 8 <= d; i += 8) {
      Eight x[8];
      each<8>([&](auto j) BMOJO_BODY { x[j] = hn::LoadU(eight, rows[j] + i); });
      transpose(x);
      each<8>([&](auto j) BMOJO_BODY { hn::Store(x[j], eight, to + (i + j) * kTile + n); });
    }
    for (; i < d; ++i)
      for (int64_t j = 0; j < 8; ++j) to[i * kTile + n + j] = rows[j][i];
  }
  for (; n < tile.count; ++n) {
    const float* row = at(n);
    for (int64_t i = 0; i < d; ++i) to[i * kTile + n] = row[i];
  }
}

// The way back, times `scale`: columns [d, kTile] into rows at(n) [d].
template <typename At>
void columns_to_rows(const Tile& tile, const float* HWY_RESTRICT columns, float scale,
                     const At& at) {
  const hn::FixedTag<float, 8> eight;
  const int64_t d = tile.m.head;
  int64_t n = 0;
  for (; n + 8 <= tile.count; n += 8) {
    float* rows[8];
    for (int64_t j = 0; j < 8; ++j) rows[j] = at(n + j);
    int64_t i = 0;
    for (; i + 8 <= d; i += 8) {
      Eight x[8];
      each<8>([&](auto j) BMOJO_BODY {
        x[j] = hn::Mul(hn::Set(eight, scale), hn::Load(eight, columns + (i + j) * kTile + n));
      });
      transpose(x);
      each<8>([&](auto j) BMOJO_BODY { hn::StoreU(x[j], eight, rows[j] + i); });
    }
    for (; i < d; ++i)
      for (int64_t j = 0; j < 8; ++j) rows[j][i] = scale * columns[i * kTile + n + j];
  }
  for (; n < tile.count; ++n) {
    float* row = at(n);
    for (int64_t i = 0; i < d; ++i) row[i] = scale * columns[i * kTile + n];
  }
}

// The tile's queries, and the keys that some of them sees, in their order.
void begin_tile(const Tile& tile, Workspace& w) {
  const auto& m = tile.m;
  rows_to_columns(tile, [&](int64_t n) { return tile.q(n); }, w.q.get());
  // As floats: exact up to 2^24, and a piece is shorter.
  for (int64_t n = 0; n < kTile; ++n)
    w.query[n] = static_cast<float>(tile.query(std::min(n, tile.count - 1)));
  const int64_t low = tile.query(0), high = tile.query(tile.count - 1),
                apart = w.packed ? m.head : m.num_kv_heads * m.head;
  w.num_keys = 0;
  for (int64_t j = 0; j < m.num_keys; ++j) {
    if (!sees(m, tile.piece, j, low, high)) continue;
    const auto n = static_cast<size_t>(w.num_keys++);
    w.slots[n] = j;
    w.keys[n] = w.packed ? w.packed.get() + 2 * j * m.head : pool_row(m, tile.piece, j, tile.group);
    w.values[n] = w.keys[n] + apart;
  }
}

// out [count, kTile] = rows · columns, columns [d, kTile]
void multiply_rows(const Tile& tile, const float* const* rows, int64_t count, const float* columns,
                   float* out) {
  for (int64_t p = 0; p < tile.panels(); ++p)
    in_steps(count, [&](auto M, int64_t k) HWY_ATTR {
      row_products<M()>(rows + k, columns + p * kPanel, tile.m.head, out + k * kTile + p * kPanel);
    });
}

// scores [count, kTile] = q·k / √d + bias, -∞ where a query does not see the key, of the tile's
// keys [first, first + count).
void fill_scores(const Tile& tile, const Workspace& w, int64_t first, int64_t count,
                 float* scores) {
  const auto& m = tile.m;
  const Floats d;
  multiply_rows(tile, w.keys.data() + first, count, w.q.get(), scores);
  const int64_t low = tile.query(0), high = tile.query(tile.count - 1),
                row = tile.piece * m.num_keys;
  const V scale = all(1.0f / std::sqrt(static_cast<float>(m.head)));
  const V never = all(-std::numeric_limits<float>::infinity());
  for (int64_t k = 0; k < count; ++k) {
    const int64_t j = w.slots[static_cast<size_t>(first + k)], from = m.from[row + j],
                  until = m.until[row + j];
    const bool partly = from > low || until <= high;
    const V bias = all(j < m.num_biased ? m.bias[tile.piece * m.num_biased + j] : 0.0f);
    float* s = scores + k * kTile;
    for (int64_t n = 0; n < tile.panels() * kPanel; n += kLanes) {
      V x = hn::Mul(hn::Load(d, s + n), scale);
      if (j < m.num_biased) x = hn::Add(x, bias);
      if (partly) {
        const V t = hn::Load(d, w.query + n);
        const auto seen = hn::And(hn::Ge(t, all(static_cast<float>(from))),
                                  hn::Lt(t, all(static_cast<float>(until))));
        x = hn::IfThenElse(seen, x, never);
      }
      hn::Store(x, d, s + n);
    }
  }
}

void find_largest(const Tile& tile, Workspace& w, const float* scores, int64_t count) {
  const Floats d;
  for (int64_t n = 0; n < tile.panels() * kPanel; n += kLanes) {
    V largest = hn::Load(d, w.largest + n);
    for (int64_t k = 0; k < count; ++k)
      largest = hn::Max(hn::Load(d, scores + k * kTile + n), largest);
    hn::Store(largest, d, w.largest + n);
  }
}

// Softmax without its division, in place.
void exponentiate(const Tile& tile, Workspace& w, float* scores, int64_t count) {
  const Floats d;
  for (int64_t n = 0; n < tile.panels() * kPanel; n += kLanes) {
    const V largest = hn::Load(d, w.largest + n);
    V sum = hn::Load(d, w.sum + n);
    for (int64_t k = 0; k < count; ++k) {
      float* s = scores + k * kTile + n;
      const V e = exp2_negative(hn::Mul(hn::Sub(hn::Load(d, s), largest), all(kLog2E)));
      hn::Store(e, d, s);
      sum = hn::Add(sum, e);
    }
    hn::Store(sum, d, w.sum + n);
  }
}

// result [d, kTile] += Σ_j rows_j · weights_j
void weigh(const Tile& tile, const float* const* rows, const float* weights, int64_t count,
           float* result) {
  for (int64_t p = 0; p < tile.panels(); ++p)
    in_steps(tile.m.head, [&](auto M, int64_t i) HWY_ATTR {
      column_products<M()>(rows, i, weights + p * kPanel, count, result + i * kTile + p * kPanel);
    });
}

void forward_tile(const Tile& tile, Workspace& w, float* out, float* log_sum) {
  const int64_t d = tile.m.head;
  begin_tile(tile, w);
  // The true maximum first: were it found on the way, blocks would show in the bits.
  std::fill_n(w.largest, kTile, -std::numeric_limits<float>::infinity());
  in_blocks(w.num_keys, [&](int64_t k, int64_t count) {
    fill_scores(tile, w, k, count, w.scores.get() + k * kTile);
    find_largest(tile, w, w.scores.get() + k * kTile, count);
  });
  std::fill_n(w.sum, kTile, 0.0f);
  std::fill_n(w.result.get(), d * kTile, 0.0f);
  in_blocks(w.num_keys, [&](int64_t k, int64_t count) {
    exponentiate(tile, w, w.scores.get() + k * kTile, count);
    weigh(tile, w.values.data() + k, w.scores.get() + k * kTile, count, w.result.get());
  });
  HWY_ALIGN float logs[kTile];
  V check = zero();  // 0, or NaN where a result is not finite
  for (int64_t n = 0; n < tile.panels() * kPanel; n += kLanes) {
    const V sum = hn::Load(Floats(), w.sum + n);
    for (int64_t i = 0; i < d; ++i) {
      float* x = w.result.get() + i * kTile + n;
      // -0 becomes 0: a key out of sight may have added 0, or not.
      const V mixed = hn::Add(hn::Div(hn::Load(Floats(), x), sum), zero());
      hn::Store(mixed, Floats(), x);
      check = hn::MulAdd(mixed, zero(), check);
    }
    hn::Store(hn::Add(hn::Load(Floats(), w.largest + n), log(sum)), Floats(), logs + n);
  }
  const bool finite = hn::AllTrue(Floats(), hn::Eq(check, zero()));
  columns_to_rows(tile, w.result.get(), 1, [&](int64_t n) { return out + tile.offset(n); });
  for (int64_t n = 0; log_sum != nullptr && n < tile.count; ++n) log_sum[tile.scalar(n)] = logs[n];
  // A weight of 0 times a value of ∞ or NaN would spoil queries that do not see it: one query at a
  // time has no such weights.
  if (finite || tile.query(0) == tile.query(tile.count - 1)) return;
  for (int64_t n = 0; n < tile.count;) {
    int64_t end = n + 1;
    while (end < tile.count && tile.query(end) == tile.query(n)) ++end;
    forward_tile({tile.m, tile.piece, tile.group, tile.first + n, end - n}, w, out, log_sum);
    n = end;
  }
}

}  // namespace

void attention_forward(const MemoryAttention& m, float* out, float* log_sum,
                       const ParallelFor& parallel) {
  const auto spans = cut(m, 8);
  run(parallel, std::ssize(spans), [&](int64_t task) {
    const Span& span = spans[static_cast<size_t>(last_first(spans, task))];
    Workspace w(m, span, m.num_keys);
    for (int64_t i = span.first; i < span.last; ++i)
      forward_tile(make_tile(m, span.piece, span.group, i), w, out, log_sum);
  });
}

namespace {

// What the forward pass left, and the gradient of its output.
struct Given {
  const float *out, *log_sum, *grad_out;
};

// What the backward pass adds to the workspace.
struct Adjoint {
  explicit Adjoint(const MemoryAttention& m)
      : width(in_panels(m.head)),
        grad_out(scratch(m.head * kTile)),
        grads(scratch(kBlock * kTile)),
        q_rows(scratch(kTile * width)),
        out_rows(scratch(kTile * width)) {}
  int64_t width;             // d in whole panels
  Scratch grad_out;          // [d, kTile]
  Scratch grads;             // [kBlock, kTile] of the scores
  Scratch q_rows, out_rows;  // [kTile, width] q / √d and the gradient of the output, row by row
  HWY_ALIGN float log_sum[kTile], dot[kTile];
  float *to_keys[kBlock], *to_values[kBlock];  // where a block's gradients are added
};

void load_tile(const Tile& tile, const Given& given, float scale, Adjoint& a) {
  const int64_t d = tile.m.head;
  std::fill_n(a.q_rows.get(), kTile * a.width, 0.0f);
  std::fill_n(a.out_rows.get(), kTile * a.width, 0.0f);
  std::fill_n(a.log_sum, kTile, 0.0f);
  std::fill_n(a.dot, kTile, 0.0f);
  for (int64_t n = 0; n < tile.count; ++n) {
    const float *grad = given.grad_out + tile.offset(n), *result = given.out + tile.offset(n),
                *q = tile.q(n);
    float* q_row = a.q_rows.get() + n * a.width;
    for (int64_t i = 0; i < d; ++i) q_row[i] = scale * q[i];
    std::copy_n(grad, d, a.out_rows.get() + n * a.width);
    a.log_sum[n] = given.log_sum[tile.scalar(n)];
    a.dot[n] = sum_over_row(d, [&](int64_t i, int64_t count, V sum) BMOJO_BODY {
      return hn::MulAdd(load(grad + i, count), load(result + i, count), sum);
    });
  }
  rows_to_columns(
      tile, [&](int64_t n) { return given.grad_out + tile.offset(n); }, a.grad_out.get());
}

// a = exp(score - log_sum) and its score's gradient a (grad·v - grad·out), of a block in place.
void score_gradients(const Tile& tile, Workspace& w, Adjoint& a, int64_t first, int64_t count) {
  const Floats d;
  multiply_rows(tile, w.values.data() + first, count, a.grad_out.get(), a.grads.get());
  for (int64_t n = 0; n < tile.panels() * kPanel; n += kLanes) {
    const V log_sum = hn::Load(d, a.log_sum + n), dot = hn::Load(d, a.dot + n);
    for (int64_t k = 0; k < count; ++k) {
      float *s = w.scores.get() + k * kTile + n, *g = a.grads.get() + k * kTile + n;
      const V weight = exp2_negative(hn::Mul(hn::Sub(hn::Load(d, s), log_sum), all(kLog2E)));
      hn::Store(weight, d, s);
      hn::Store(hn::Mul(weight, hn::Sub(hn::Load(d, g), dot)), d, g);
    }
  }
}

// The sums of the gradients of keys and values, apart for each task: a key has a row in those of
// its piece's tasks if some query sees it (pieces of short documents have few such keys).
struct KeySums {
  KeySums(const MemoryAttention& m, const std::vector<Span>& spans)
      : width(in_panels(m.head)), place(static_cast<size_t>(m.num_pieces * m.num_keys), -1) {
    std::vector<int64_t> seen(static_cast<size_t>(m.num_pieces), 0);
    for (size_t i = 0; i < place.size(); ++i)
      if (m.until[i] > m.from[i]) place[i] = seen[i / static_cast<size_t>(m.num_keys)]++;
    for (const auto& span : spans)
      first.push_back(first.back() + seen[static_cast<size_t>(span.piece)]);
    rows = scratch(first.back() * 2 * width);
  }
  void clear(size_t task) { std::fill(of(task), of(task + 1), 0.0f); }
  float* of(size_t task) const { return rows.get() + first[task] * 2 * width; }

  int64_t width;                     // d in whole panels
  std::vector<int64_t> place;        // [P, S] which row of its piece, -1: none
  std::vector<int64_t> first = {0};  // row of each task, and of none behind the last
  Scratch rows;                      // [rows, 2, width]
};

// `rows` and `bias` [num_biased] are the task's, place [S] the piece's.
void backward_tile(const Tile& tile, const Given& given, Workspace& w, Adjoint& a, float* grad_q,
                   const int64_t* place, float* rows, float* bias) {
  const auto& m = tile.m;
  const float scale = 1.0f / std::sqrt(static_cast<float>(m.head));
  begin_tile(tile, w);
  load_tile(tile, given, scale, a);
  std::fill_n(w.result.get(), m.head * kTile, 0.0f);
  in_blocks(w.num_keys, [&](int64_t first, int64_t count) {
    fill_scores(tile, w, first, count, w.scores.get());
    score_gradients(tile, w, a, first, count);
    weigh(tile, w.keys.data() + first, a.grads.get(), count, w.result.get());
    for (int64_t k = 0; k < count; ++k) {
      const int64_t j = w.slots[static_cast<size_t>(first + k)];
      a.to_keys[k] = rows + 2 * place[j] * a.width;
      a.to_values[k] = a.to_keys[k] + a.width;
      const float* g = a.grads.get() + k * kTile;
      for (int64_t n = 0; j < m.num_biased && n < tile.count; ++n) bias[j] += g[n];
    }
    for (int64_t i = 0; i < a.width; i += kPanel)
      in_steps(count, [&](auto M, int64_t k) HWY_ATTR {
        add_outer<M()>(a.grads.get() + k * kTile, a.q_rows.get(), a.width, tile.count,
                       a.to_keys + k, i);
        add_outer<M()>(w.scores.get() + k * kTile, a.out_rows.get(), a.width, tile.count,
                       a.to_values + k, i);
      });
  });
  columns_to_rows(tile, w.result.get(), scale, [&](int64_t n) { return grad_q + tile.offset(n); });
}

// A pool row's gradient is the sum over the pieces that hold it, in time order.
void add_to_pool(const MemoryAttention& m, const std::vector<Span>& spans, const KeySums& sums,
                 int64_t group, int64_t part, float* pool) {
  for (size_t s = 0; s < spans.size(); ++s) {
    if (spans[s].group != group) continue;
    for (int64_t j = 0; j < m.num_keys; ++j) {
      const int64_t at = spans[s].piece * m.num_keys + j;
      const int64_t row = sums.place[static_cast<size_t>(at)];
      if (row < 0) continue;
      const float* sum = sums.of(s) + (2 * row + part) * sums.width;
      float* to = pool + ((m.index[at] * 2 + part) * m.num_kv_heads + group) * m.head;
      for (int64_t i = 0; i < m.head; ++i) to[i] += sum[i];
    }
  }
}

}  // namespace

void attention_backward(const MemoryAttention& m, const float* out, const float* log_sum,
                        const float* grad_out, const MemoryAttentionGradients& gradients,
                        const ParallelFor& parallel) {
  // Enough tasks for the threads even where there is one piece, cut by the problem alone.
  int64_t tiles = 0;
  for (int64_t p = 0; p < m.num_pieces; ++p) tiles = std::max(tiles, num_tiles(m, p));
  const int64_t pieces_and_heads = std::max<int64_t>(1, m.num_pieces * m.num_kv_heads);
  const int64_t slices = std::max<int64_t>(1, 8 / pieces_and_heads);
  const auto spans = cut(m, std::max<int64_t>(1, (tiles + slices - 1) / slices));
  KeySums sums(m, spans);
  std::vector<float> biases(static_cast<size_t>(std::ssize(spans) * m.num_biased), 0.0f);
  run(parallel, std::ssize(spans), [&](int64_t number) {
    const int64_t task = last_first(spans, number);
    const Span& span = spans[static_cast<size_t>(task)];
    Workspace w(m, span, kBlock);
    Adjoint a(m);
    sums.clear(static_cast<size_t>(task));
    for (int64_t i = span.first; i < span.last; ++i)
      backward_tile(make_tile(m, span.piece, span.group, i), {out, log_sum, grad_out}, w, a,
                    gradients.q, sums.place.data() + span.piece * m.num_keys,
                    sums.of(static_cast<size_t>(task)), biases.data() + task * m.num_biased);
  });
  run(parallel, 2 * m.num_kv_heads,
      [&](int64_t task) { add_to_pool(m, spans, sums, task / 2, task % 2, gradients.pool); });
  if (gradients.bias == nullptr) return;
  std::fill_n(gradients.bias, m.num_pieces * m.num_biased, 0.0f);
  for (size_t s = 0; s < spans.size(); ++s)
    for (int64_t j = 0; j < m.num_biased; ++j)
      gradients.bias[spans[s].piece * m.num_biased + j] +=
          biases[s * static_cast<size_t>(m.num_biased) + static_cast<size_t>(j)];
}

}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bmojo::kernels {

HWY_EXPORT(attention_forward);
HWY_EXPORT(attention_backward);

void memory_attention(const MemoryAttention& m, float* out, float* log_sum,
                      const ParallelFor& parallel) {
  HWY_DYNAMIC_DISPATCH(attention_forward)(m, out, log_sum, parallel);
}

void memory_attention_backward(const MemoryAttention& m, const float* out, const float* log_sum,
                               const float* grad_out, const MemoryAttentionGradients& gradients,
                               const ParallelFor& parallel) {
  HWY_DYNAMIC_DISPATCH(attention_backward)(m, out, log_sum, grad_out, gradients, parallel);
}

}  // namespace bmojo::kernels
#endif
