#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "bmojo/memory/eidetic_sets.h"
#include "bmojo/memory/layer_state.h"
#include "bmojo/memory/state_size.h"
#include "bmojo/memory/visibility.h"
#include "bmojo/model/config.h"

namespace bmojo::infer {

// What one layer of one sequence carries, and where its rows lie:
//   ssm      [N, E], not [E, N]: a step reads and writes it vector by vector
//   window   position p in row p % w; without a limit in row p
//   fading   `sliding`: position p in row p % (w + m_f - 1); `chunk`: memory::FadingMemory::row_of
//   eidetic  the frozen set's members, by time
using LayerState = memory::LayerState<std::vector<float>, std::vector<int64_t>>;

// A sequence that has been read up to here. A value: a copy goes its own way.
struct State {
  int64_t position = 0;                 // tokens read of its document
  int64_t document = memory::kUnnamed;  // its id, where ids are given
  std::vector<LayerState> layers;
};

// The memories of a layer with attention.
struct MemoryShape {
  MemoryShape(const model::Config& config, int64_t layer);

  memory::WindowMemory window;
  memory::FadingMemory fading;  // m_f = 0: none
  int64_t eidetic = 0;          // m_e
  int64_t row = 0;              // numbers of a row [2, G, d]
  int64_t layer = 0;
  const model::Config* config;
};

using memory::LayerSizes, memory::sizes_of;
// each(name, array, its size) for every field of a layer's state.
template <typename Self, typename Each>
void visit_with_sizes(Self& state, const LayerSizes& sizes, const Each& each) {
  std::vector<int64_t> list;
  const auto note = [&](const char*, int64_t size) { list.push_back(size); };
  LayerSizes::visit(sizes, note, note);
  size_t field = 0;
  const auto give = [&](const char* name, auto& array) {
    each(name, array, static_cast<size_t>(list[field++]));
  };
  LayerState::visit(state, give, give);
}

State initial_state(const model::Config& config);

// Rows of one memory that lie one behind the other, at consecutive positions (eidetic ones are the
// first of the frozen set).
struct KeyRun {
  enum Memory { eidetic, fading, window } memory = window;
  const float* first = nullptr;
  int64_t count = 0;
  int64_t position = 0;
};

// What queries at [position, position + count) of one piece may see besides each other, in the
// order of the keys: eidetic, fading in up to two parts, window in up to two parts.
struct OldKeys {
  std::array<KeyRun, 5> runs;
  int num_runs = 0;
  int64_t num_eidetic = 0;

  void add(const KeyRun& run) {
    if (run.count > 0) runs[static_cast<size_t>(num_runs++)] = run;
  }
};
OldKeys old_keys(const MemoryShape& shape, const LayerState& state, int64_t position,
                 int64_t count);

// Before a piece is read: where a chunk begins, its memories are frozen.
void begin_piece(const MemoryShape& shape, LayerState& state, int64_t position);

// After a piece of `count` tokens from `position` on was read. rows [count, 2, G, d] are their keys
// and values.
void remember_window(const MemoryShape& shape, LayerState& state, int64_t position, int64_t count,
                     const float* rows);
// row [2, G, d] of one position that shape.fading.projects().
void remember_fading(const MemoryShape& shape, LayerState& state, int64_t position,
                     const float* row);

// Kept from call to call.
struct SelectionScratch {
  std::vector<double> ranks;
  std::vector<int64_t> kept, order;
};
// Innovation Selection among the running set and the piece's tokens; with `wanted`, of these
// positions the first m_e that were read.
void remember_eidetic(const MemoryShape& shape, LayerState& state, int64_t position,
                      std::span<const float> innovation, std::span<const int64_t> ids,
                      const std::vector<int64_t>* wanted, SelectionScratch& scratch);

}  // namespace bmojo::infer
