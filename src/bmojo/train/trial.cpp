#include "bmojo/train/trial.h"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "bmojo/base/memory.h"
#include "bmojo/model/tensors.h"
#include "bmojo/nn/adamw.h"
#include "bmojo/nn/model.h"
#include "bmojo/train/backward.h"
#include "bmojo/train/evaluate.h"

namespace bmojo::train {
namespace {

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Tokens that a pass over some layers is tried with.
constexpr int64_t kFewTokens = 256;

// Weights of zero are pages that need not exist, and nothing that is kept depends on them.
double kept_bytes(Config config, int64_t num_layers, bool recompute) {
  config.num_layers = num_layers;
  nn::Parameters parameters;
  for (const auto& spec : tensor_specs(config))
    parameters.emplace_back(spec.name, at::zeros(spec.shape));
  nn::Model model(config, std::move(parameters));
  model.require_gradients();
  nn::CallOptions call;
  call.recompute = recompute;
  const auto ids = at::zeros({1, kFewTokens}, at::kLong);
  double kept = 0;
  for (int i = 0; i < 2; ++i) {  // the first makes buffers that stay
    const auto before = heap_in_use();
    const auto out = model.forward(ids, {}, call);
    kept = static_cast<double>(heap_in_use() - before);
  }
  return kept / static_cast<double>(kFewTokens);
}

}  // namespace

// Layers of one kind keep the same, so two depths tell of all.
KeptBytes kept_bytes_per_token(const Config& config, bool recompute) {
  const int64_t period =
      std::min<int64_t>(std::ranges::count(config.pattern, ',') + 1, config.num_layers);
  const auto periods = static_cast<double>(config.num_layers) / static_cast<double>(period);
  const auto measure = [&](bool again) {
    const double once = kept_bytes(config, period, again);
    const double more = kept_bytes(config, 2 * period, again) - once;
    return KeptBytes{once + more * (periods - 1), more / static_cast<double>(period)};
  };
  const auto kept = measure(false);
  return recompute ? KeptBytes{measure(true).model, kept.layer} : kept;
}

Trial try_steps(const Config& config, const Source& source, const TrialShape& shape,
                const TrialStep& step) {
  const auto batch = columns(source.train(0, 0, shape.rows), 0, shape.length());
  nn::Model model(config, nn::fresh_parameters(config, 0));
  model.require_gradients();
  nn::AdamWGroup all{.parameters = {}, .rate = 0, .weight_decay = 0};
  for (const auto& [name, tensor] : model.parameters()) all.parameters.push_back(tensor);
  nn::AdamW optimizer({all});
  Trial trial{.num_scored = batch.num_scored};
  const int64_t tried = std::clamp<int64_t>(step.num_micro, 1, step.carries ? kMostTried : 2);
  std::vector<nn::State> states(tried);
  for (int i = 0; i < 2; ++i) {
    for (auto& tensor : all.parameters) tensor.mutable_grad() = at::Tensor();
    const auto states_before = states;
    for (auto& carried : states) {
      nn::State state = carried;
      trial.seconds = seconds_of(
          [&] { backward(model, batch, {shape.segment, shape.bptt, step.recompute}, 1, state); });
      if (step.carries) carried = std::move(state);
    }
    trial.update_seconds = seconds_of([&] { optimizer.step(); });
  }
  trial.scoring_seconds = seconds_of([&] { score(model, batch); });
  return trial;
}

}  // namespace bmojo::train
