#include "bmojo/infer/model.h"

#include <algorithm>

#include "bmojo/base/error.h"
#include "bmojo/infer/layer.h"
#include "bmojo/kernels/cpu.h"
#include "bmojo/kernels/norm.h"
#include "bmojo/kernels/predictor_weights.h"
#include "bmojo/kernels/rotary_table.h"

namespace bmojo::infer {
namespace {

// Tokens that pass through the layers together, over all sequences: enough for the products to be
// bound by arithmetic, few enough for what lies between layers to stay small.
constexpr int64_t kTokensAtOnce = 512;

bool is_told(const model::Config& c) {
  return c.eidetic_rule == "oracle" && c.eidetic_tokens > 0 && c.has(model::LayerKind::bmojo);
}

void check(std::span<const Input> inputs, const model::Config& config) {
  const bool needs_wanted = is_told(config);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& input = inputs[i];
    for (size_t j = 0; j < i; ++j)
      base::require(inputs[j].state != input.state,
                    "forward: every sequence must have a state of its own, got one of them twice");
    base::require(std::ssize(input.state->layers) == config.num_layers,
                  "forward: state must have {} layers, got {}; begin() makes one",
                  config.num_layers, input.state->layers.size());
    base::require(
        !needs_wanted || input.wanted != nullptr,
        "forward: eidetic_rule=oracle must be told what to keep, got no task's sources; use "
        "train --task or eval --task");
    base::require(input.documents.empty() || input.documents.size() == input.ids.size(),
                  "forward: documents must be one a token = {}, got {}", input.ids.size(),
                  input.documents.size());
    base::require(
        input.documents.empty() || input.state->position == 0 ||
            input.state->document != memory::kUnnamed,
        "forward: documents must be given from a sequence's first token on, got them after {}",
        input.state->position);
    for (const auto id : input.ids)
      base::require(id >= 0 && id < config.vocab_size, "forward: ids must be from 0 to {}, got {}",
                    config.vocab_size - 1, id);
  }
}

// Where another document begins, its state does too. Returns how many of the tokens from `done` on
// are of this document, at most `most`.
int64_t enter_document(const Input& input, const model::Config& config, int64_t done,
                       int64_t most) {
  most = std::min(most, std::ssize(input.ids) - done);
  if (input.documents.empty()) return most;
  const auto rest = input.documents.subspan(static_cast<size_t>(done), static_cast<size_t>(most));
  auto& state = *input.state;
  if (state.position > 0 && state.document != rest[0]) state = initial_state(config);
  state.document = rest[0];
  const auto end =
      std::ranges::find_if(rest, [&](int64_t document) { return document != rest[0]; });
  return end - rest.begin();
}

}  // namespace

Model::Model(const model::TensorFolder& tensors, model::Config config,
             std::optional<WeightType> type, int threads)
    : pool_(std::make_unique<base::ThreadPool>(base::threads_of(threads))),
      weights_(tensors, std::move(config), type, kernels::ParallelFor(*pool_)) {
  const auto& c = weights_.config;
  const kernels::FloatMode mode;
  if (c.rope_theta > 0 && c.has_attention())
    frequencies_ = kernels::rotary_frequencies(c.head_size / 2, c.rope_theta);
  for (const double weight : kernels::predictor_weights(c.predictor_taps, c.predictor_decay))
    predictor_.push_back(static_cast<float>(weight));
}

void Model::forward(std::span<const Input> inputs, float* hidden, eval::Observer* observer) const {
  const auto& c = config();
  check(inputs, c);
  const kernels::FloatMode mode;  // also for what is added between the kernels
  thread_local Workspace ws;
  thread_local std::vector<Run> runs;
  thread_local std::vector<int64_t> done, first;
  const int64_t D = c.hidden_size, w = memory::window_of(c.window);
  const kernels::ParallelFor parallel(*pool_);
  done.assign(inputs.size(), 0);
  first.clear();
  int64_t total = 0;
  for (const auto& input : inputs) {
    first.push_back(total);
    total += std::ssize(input.ids);
  }
  while (true) {
    int64_t num_reading = 0;
    for (size_t i = 0; i < inputs.size(); ++i) num_reading += done[i] < std::ssize(inputs[i].ids);
    if (num_reading == 0) return;
    const int64_t share = std::max<int64_t>(1, kTokensAtOnce / num_reading);
    // Of every sequence its next piece.
    runs.clear();
    int64_t T = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto& input = inputs[i];
      if (done[i] == std::ssize(input.ids)) continue;
      const int64_t left = enter_document(input, c, done[i], share);
      const int64_t position = input.state->position;
      const int64_t count = memory::piece_length(position, left, w);
      runs.push_back(
          {.state = input.state,
           .ids = input.ids.subspan(static_cast<size_t>(done[i]), static_cast<size_t>(count)),
           .first = T,
           .position = position,
           .sequence = static_cast<int64_t>(i),
           .column = done[i],
           .wanted = is_told(c) ? input.wanted : nullptr});
      T += count;
    }
    if (std::ssize(ws.x) < T * D) ws.x.resize(static_cast<size_t>(T * D));
    const Call call{weights_, frequencies_, predictor_, runs, T, ws, parallel, observer};
    for (const auto& run : runs)
      for (int64_t t = 0; t < run.count(); ++t)
        weights_.embed(run.ids[static_cast<size_t>(t)], ws.x.data() + (run.first + t) * D);
    begin_call(call);
    for (int64_t i = 0; i < c.num_layers; ++i) forward_layer(call, i);
    for (size_t i = 0, r = 0; i < inputs.size() && r < runs.size(); ++i) {
      if (inputs[i].state != runs[r].state) continue;
      const auto& run = runs[r++];
      kernels::rms_norm({.R = run.count(),
                         .D = D,
                         .x = {ws.x.data() + run.first * D, D},
                         .gain = weights_.norm,
                         .eps = static_cast<float>(c.norm_eps)},
                        nullptr, hidden + (first[i] + done[i]) * D, nullptr, parallel);
      done[i] += run.count();
      run.state->position += run.count();
    }
  }
}

void Model::logits(const float* hidden, int64_t n, float* out) const {
  kernels::packed_product({.M = n,
                           .x = {hidden, config().hidden_size},
                           .w = weights_.head,
                           .out = out,
                           .out_stride = config().vocab_size},
                          kernels::ParallelFor(*pool_));
}

}  // namespace bmojo::infer
