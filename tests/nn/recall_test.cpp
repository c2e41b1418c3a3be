// The layer is right for its purpose: B'MOJO learns to recall what lies far outside its window, and
// cannot without its eidetic memory.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <numbers>

#include "bmojo/nn/model.h"
#include "tests/nn/mqar.h"

namespace bmojo::nn {
namespace {

Config recall_config(int64_t eidetic_tokens) {
  Config c;
  c.vocab_size = 512;
  c.hidden_size = c.ssm_inner_size = c.head_size = 64;
  c.num_layers = 2;
  c.ssm_state_size = 16;
  c.ssm_conv_taps = 4;
  c.ssm_dt_rank = 4;
  c.num_heads = c.num_kv_heads = 1;
  c.window = 16;
  c.fading_tokens = 4;
  c.eidetic_tokens = eidetic_tokens;
  validate(c);
  return c;
}

// Norms, biases, A_log, D and β are vectors or per-channel constants: no decay pulls on them.
bool decays(const std::string& name) {
  return name.ends_with("proj.weight") || name.ends_with("conv1d.weight") ||
         name == "embedding.weight";
}

// When learning sets in is left to chance (docs/model.md, "It remembers"), so the rate stays at its
// peak until it has, and only then decays.
struct Schedule {
  double peak = 3e-3;
  int64_t warmup = 50, most_waiting = 2000, decay = 500;
  int64_t decay_from = -1;
  double recent_loss = 10;

  double rate(int64_t step) const {
    if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
    if (decay_from < 0) return peak;
    const double progress = static_cast<double>(step - decay_from) / static_cast<double>(decay);
    return 0.5 * peak * (1 + std::cos(std::numbers::pi * progress));
  }
  void see(int64_t step, double loss) {
    recent_loss = 0.95 * recent_loss + 0.05 * loss;
    if (decay_from < 0 && (recent_loss < 1 || step + 1 == most_waiting)) decay_from = step + 1;
  }
  bool done(int64_t step) const { return decay_from >= 0 && step == decay_from + decay; }
};

Model train(const Config& config, Schedule schedule = {}) {
  Model model(config, fresh_parameters(config, 1));
  model.require_gradients();
  std::vector<at::Tensor> with, without;
  for (const auto& [name, tensor] : model.parameters())
    (decays(name) ? with : without).push_back(tensor);
  using Options = torch::optim::AdamWOptions;
  const auto options = [&](double decay) {
    return std::make_unique<Options>(Options(schedule.peak).betas({0.9, 0.95}).weight_decay(decay));
  };
  torch::optim::AdamW optimizer({{with, options(0.1)}, {without, options(0)}});
  const auto all = [&] {
    auto both = with;
    both.insert(both.end(), without.begin(), without.end());
    return both;
  }();

  const test::Mqar task;
  std::mt19937_64 random(1);
  for (int64_t step = 0; !schedule.done(step); ++step) {
    for (auto& group : optimizer.param_groups()) group.options().set_lr(schedule.rate(step));
    const auto [ids, targets] = task.sample(16, random);
    const auto scored = (targets.flatten() >= 0).nonzero().squeeze(1);
    const auto hidden = model.forward(ids).hidden.flatten(0, 1).index_select(0, scored);
    const auto loss =
        at::cross_entropy_loss(model.logits(hidden), targets.flatten().index_select(0, scored));
    optimizer.zero_grad();
    loss.backward();
    torch::nn::utils::clip_grad_norm_(all, 1.0);
    optimizer.step();
    schedule.see(step, loss.item<double>());
    if (step % 100 == 99)
      std::fprintf(stderr, "m_e %2ld  step %4ld  loss %.4f\n", config.eidetic_tokens, step + 1,
                   schedule.recent_loss);
  }
  return model;
}

// Share of answers that are the most likely token, over fresh sequences.
double accuracy(const Model& model, int64_t sequences) {
  torch::NoGradGuard no_grad;
  const test::Mqar task;
  std::mt19937_64 random(987654321);
  double right = 0, asked = 0;
  for (int64_t done = 0; done < sequences; done += 50) {
    const auto batch = task.sample(50, random);
    const auto best = model.logits(model.forward(batch.ids).hidden).argmax(-1);
    const auto scored = batch.targets >= 0;
    right += (best == batch.targets).logical_and(scored).sum().item<double>();
    asked += scored.sum().item<double>();
  }
  return right / asked;
}

TEST(Recall, EideticMemoryAnswersBeyondTheWindow) {
  const double recalled = accuracy(train(recall_config(48)), 1000);
  std::printf("with eidetic memory: %.2f %%\n", 100 * recalled);
  EXPECT_GE(recalled, 0.95);
}

TEST(Recall, WithoutEideticMemoryItCannot) {
  const double recalled = accuracy(train(recall_config(0)), 1000);
  std::printf("without eidetic memory: %.2f %%\n", 100 * recalled);
  EXPECT_LT(recalled, 0.60);
}

}  // namespace
}  // namespace bmojo::nn
