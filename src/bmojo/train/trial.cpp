#include "bmojo/train/trial.h"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "bmojo/eval/evaluate.h"
#include "bmojo/nn/adamw.h"
#include "bmojo/nn/language_model.h"
#include "bmojo/nn/model.h"
#include "bmojo/train/backward.h"

namespace bmojo::train {
namespace {

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Trial try_steps(const model::Config& config, const Source& source, const TrialShape& shape,
                const TrialStep& step) {
  const auto batch = data::columns(source.train(0, 0, shape.sequences), 0, shape.length());
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
  trial.scoring_seconds =
      seconds_of([&] { eval::evaluate(*nn::make_language_model(model), batch); });
  return trial;
}

}  // namespace bmojo::train
