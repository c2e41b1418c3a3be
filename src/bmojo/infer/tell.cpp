#include "bmojo/infer/tell.h"

#include <algorithm>
#include <cmath>

#include "bmojo/kernels/eidetic_bias.h"

namespace bmojo::infer {
namespace {

const LayerState& state_of(const Run& run, int64_t layer) {
  return run.state->layers[static_cast<size_t>(layer)];
}

// The keys that one query sees, in the order of the layer.
struct Seen {
  std::vector<eval::SeenKey> keys;
  std::vector<const float*> rows;  // [2, G, d] each
  std::vector<float> bias;         // of the first ones
};

// Those of token t of a run.
Seen seen_by(const Call& c, const PackedLayer& w, const MemoryShape& shape, const Run& run,
             int64_t t) {
  const auto& state = state_of(run, shape.layer);
  const int64_t position = run.position + t;
  Seen out;
  // As a piece of one token, which sees what it sees in any other. The window's rows before it are
  // in the state up to the run, and in the call from there on.
  const auto old = old_keys(shape, state, run.position, t + 1);
  const auto add = [&](eval::MemoryKind kind, int64_t p, const float* row) {
    out.keys.push_back({kind, p});
    out.rows.push_back(row);
  };
  for (int i = 0; i < old.num_runs; ++i) {
    const auto& keys = old.runs[static_cast<size_t>(i)];
    for (int64_t j = 0; j < keys.count; ++j) {
      const float* row = keys.first + j * shape.row;
      const int64_t p = keys.position + j;
      if (keys.memory == KeyRun::eidetic) {
        const auto member = state.frozen.position[static_cast<size_t>(j)];
        if (memory::EideticMemory{shape.window.w}.seen_from(member) <= position)
          add(eval::MemoryKind::eidetic, member, row);
        continue;
      }
      const auto seen = keys.memory == KeyRun::fading ? shape.fading.seen_by(p, run.position)
                                                      : shape.window.seen_by(p);
      if (position < seen.from || position - seen.from >= seen.count) continue;
      add(keys.memory == KeyRun::fading ? eval::MemoryKind::fading : eval::MemoryKind::window, p,
          row);
    }
  }
  for (int64_t j = std::max<int64_t>(0, t - shape.window.w + 1); j <= t; ++j)
    add(eval::MemoryKind::window, run.position + j, c.ws.kv.data() + (run.first + j) * shape.row);
  if (w.beta) {
    out.bias.resize(state.frozen.innovation.size());
    if (!out.bias.empty())
      kernels::eidetic_bias({.m = std::ssize(out.bias),
                             .innovation = state.frozen.innovation.data(),
                             .beta = *w.beta},
                            out.bias.data(), kernels::serial_for);
  }
  return out;
}

// weight_j = softmax_j(q·k_j / √d + b_j)
void add_weights(const Seen& seen, const float* q, int64_t kv_head, int64_t d,
                 std::vector<double>& weights) {
  std::vector<double> scores;
  size_t eidetic = 0;
  for (size_t j = 0; j < seen.rows.size(); ++j) {
    const float* k = seen.rows[j] + kv_head * d;
    double dot = 0;
    for (int64_t i = 0; i < d; ++i) dot += static_cast<double>(q[i]) * static_cast<double>(k[i]);
    dot /= std::sqrt(static_cast<double>(d));
    // Members that are hidden are the newest, so those seen have the first biases.
    if (seen.keys[j].memory == eval::MemoryKind::eidetic && !seen.bias.empty())
      dot += static_cast<double>(seen.bias[eidetic++]);
    scores.push_back(dot);
  }
  const double largest = *std::ranges::max_element(scores);
  double sum = 0;
  for (auto& score : scores) sum += score = std::exp(score - largest);
  for (const auto score : scores) weights.push_back(score / sum);
}

}  // namespace

void tell_pieces(const Call& c, const MemoryShape& shape) {
  if (shape.eidetic == 0) return;
  for (const auto& run : c.runs) {
    const auto& state = state_of(run, shape.layer);
    c.observer->on_piece(
        {.layer = shape.layer,
         .first = {run.sequence, run.column, run.position},
         .innovation = {c.ws.innovation.data() + run.first, static_cast<size_t>(run.count())},
         .seen = state.frozen.position,
         .kept = state.running.position,
         .ends_chunk = memory::begins_chunk(run.position + run.count(), shape.window.w)});
  }
}

void tell_attention(const Call& c, const PackedLayer& w, const MemoryShape& shape, const float* q) {
  const auto& config = c.weights.config;
  const int64_t H = config.num_heads, G = config.num_kv_heads, d = config.head_size;
  for (const auto& run : c.runs)
    for (int64_t t = 0; t < run.count(); ++t) {
      if (!c.observer->asks_attention(run.sequence, run.column + t)) continue;
      const auto seen = seen_by(c, w, shape, run, t);
      std::vector<double> weights;
      for (int64_t h = 0; h < H; ++h)
        add_weights(seen, q + ((run.first + t) * H + h) * d, h / (H / G), d, weights);
      c.observer->on_attention({.layer = shape.layer,
                                .num_heads = H,
                                .query = {run.sequence, run.column + t, run.position + t},
                                .keys = seen.keys,
                                .weight = weights});
    }
}

}  // namespace bmojo::infer
