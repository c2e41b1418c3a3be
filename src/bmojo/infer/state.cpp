#include "bmojo/infer/state.h"

#include <algorithm>

#include "bmojo/kernels/selection.h"

namespace bmojo::infer {
namespace {

// Positions [first, last] of a ring of `rows` rows, in up to two parts.
void add_ring(OldKeys& keys, KeyRun::Memory memory, const std::vector<float>& ring, int64_t rows,
              int64_t row, memory::Span span) {
  span.first = std::max<int64_t>(span.first, 0);
  while (span.count() > 0) {
    const int64_t slot = rows == memory::kUnlimited ? span.first : span.first % rows;
    const int64_t count = std::min(span.count(), rows - slot);
    keys.add({memory, ring.data() + slot * row, count, span.first});
    span.first += count;
  }
}

// The rows of what enters the frozen set: those of old members move up, the others are still in the
// window.
void freeze(const MemoryShape& shape, LayerState& state) {
  const auto &old = state.frozen.position, &now = state.running.position;
  const int64_t w = shape.window.w, row = shape.row;
  state.eidetic.resize(std::max(old.size(), now.size()) * static_cast<size_t>(row));
  for (size_t i = 0, j = 0; i < now.size(); ++i) {
    while (j < old.size() && old[j] < now[i]) ++j;
    const bool was_frozen = j < old.size() && old[j] == now[i];
    const float* from = was_frozen ? state.eidetic.data() + static_cast<int64_t>(j) * row
                                   : state.window.data() + now[i] % w * row;
    // Members stay in time order, so none moves behind one that has still to move.
    std::copy_n(from, row, state.eidetic.data() + static_cast<int64_t>(i) * row);
  }
  state.eidetic.resize(now.size() * static_cast<size_t>(row));
  state.frozen = state.running;
}

// The rows in use are now the m_f before the new chunk: those collected, and before them what is
// left of the old ones.
void turn_fading(const memory::FadingMemory& fading, int64_t row, std::vector<float>& rows) {
  const int64_t collected = fading.collected(), kept = fading.m_f - collected;
  float* in_use = rows.data();
  std::copy_n(in_use + fading.w * row, kept * row, in_use);
  std::copy_n(in_use + fading.m_f * row, collected * row, in_use + kept * row);
}

// Of what is wanted, the most first, the m that are there; places in `positions`, by time. What was
// left out once is never needed again: what was wanted more stays.
void keep_wanted(const std::vector<int64_t>& wanted, const std::vector<int64_t>& positions,
                 int64_t m, std::vector<int64_t>& kept) {
  kept.clear();
  for (const auto position : wanted) {
    if (std::ssize(kept) == m) break;
    const auto at = std::ranges::lower_bound(positions, position);
    if (at != positions.end() && *at == position) kept.push_back(at - positions.begin());
  }
  std::ranges::sort(kept);
}

template <typename Items>
void take(Items& items, const std::vector<int64_t>& kept) {
  // Places rise, so each moves to the front without meeting another.
  for (size_t i = 0; i < kept.size(); ++i) items[i] = items[static_cast<size_t>(kept[i])];
  items.resize(kept.size());
}

}  // namespace

MemoryShape::MemoryShape(const model::Config& c, int64_t layer_)
    : window{memory::window_of(c.window)},
      fading{c.window, c.kind(layer_) == model::LayerKind::bmojo ? c.fading_tokens : 0,
             c.fading_sliding()},
      eidetic(c.kind(layer_) == model::LayerKind::bmojo ? c.eidetic_tokens : 0),
      row(2 * c.num_kv_heads * c.head_size),
      layer(layer_),
      config(&c) {}

State initial_state(const model::Config& c) {
  State state;
  for (int64_t i = 0; i < c.num_layers; ++i)
    visit_with_sizes(state.layers.emplace_back(), sizes_of(c, i, 0),
                     [](const char*, auto& array, size_t size) { array.resize(size); });
  return state;
}

OldKeys old_keys(const MemoryShape& shape, const LayerState& state, int64_t position,
                 int64_t count) {
  OldKeys keys;
  const int64_t w = shape.window.w, row = shape.row;
  if (shape.eidetic > 0) {
    const auto& members = state.frozen.position;
    const memory::EideticMemory memory{w};
    // In time order, so what the last query sees is a prefix.
    const auto hidden = std::ranges::partition_point(
        members, [&](int64_t p) { return memory.seen_from(p) < position + count; });
    keys.num_eidetic = hidden - members.begin();
    keys.add({KeyRun::eidetic, state.eidetic.data(), keys.num_eidetic, 0});
  }
  if (shape.fading.m_f > 0) {
    auto span = shape.fading.keys(position, count);
    if (shape.fading.sliding) {
      add_ring(keys, KeyRun::fading, state.fading, shape.fading.num_rows(), row, span);
    } else if (span.last >= 0) {
      span.first = std::max<int64_t>(span.first, 0);
      keys.add({KeyRun::fading,
                state.fading.data() + shape.fading.row_of(span.first, position) * row, span.count(),
                span.first});
    }
  }
  add_ring(keys, KeyRun::window, state.window, w, row,
           {shape.window.keys(position, count).first, position - 1});
  return keys;
}

void begin_piece(const MemoryShape& shape, LayerState& state, int64_t position) {
  if (position == 0 || !memory::begins_chunk(position, shape.window.w)) return;
  if (shape.eidetic > 0) freeze(shape, state);
  if (shape.fading.m_f > 0 && !shape.fading.sliding)
    turn_fading(shape.fading, shape.row, state.fading);
}

void remember_window(const MemoryShape& shape, LayerState& state, int64_t position, int64_t count,
                     const float* rows) {
  const int64_t w = shape.window.w, row = shape.row;
  if (w == memory::kUnlimited) {
    state.window.insert(state.window.end(), rows, rows + count * row);
    return;
  }
  for (int64_t i = std::max<int64_t>(0, count - w); i < count; ++i)
    std::copy_n(rows + i * row, row, state.window.data() + (position + i) % w * row);
}

void remember_fading(const MemoryShape& shape, LayerState& state, int64_t position,
                     const float* row) {
  const auto& fading = shape.fading;
  const int64_t at =
      fading.sliding ? position % fading.num_rows() : fading.row_of(position, position);
  std::copy_n(row, shape.row, state.fading.data() + at * shape.row);
}

void remember_eidetic(const MemoryShape& shape, LayerState& state, int64_t position,
                      std::span<const float> innovation, std::span<const int64_t> ids,
                      const std::vector<int64_t>* wanted, SelectionScratch& scratch) {
  auto& set = state.running;
  for (size_t i = 0; i < innovation.size(); ++i) {
    set.innovation.push_back(innovation[i]);
    set.position.push_back(position + static_cast<int64_t>(i));
    set.token.push_back(ids[i]);
  }
  if (wanted != nullptr) {
    keep_wanted(*wanted, set.position, shape.eidetic, scratch.kept);
  } else {
    scratch.ranks.clear();
    for (size_t i = 0; i < set.position.size(); ++i)
      scratch.ranks.push_back(memory::eidetic_rank(shape.config->eidetic_rule, shape.layer,
                                                   set.innovation[i], set.position[i],
                                                   set.token[i]));
    kernels::keep_largest(scratch.ranks, shape.eidetic, scratch.kept, scratch.order);
  }
  take(set.innovation, scratch.kept);
  take(set.position, scratch.kept);
  take(set.token, scratch.kept);
}

}  // namespace bmojo::infer
