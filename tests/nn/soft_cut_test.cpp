// Training with more places than will be used: what the soft cut adds, what it leads to, and that
// it is as exact as the rest of the layer in splits, steps, packs and gradients.

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "bmojo/nn/ops/fused.h"
#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

using test::describe, test::random_config, test::relative_error, test::strong_parameters;

constexpr double kRounding = 1e-9;  // double, two layers deep, sums in another order

model::Config wide_config(uint64_t seed, int64_t places) {
  auto config = random_config(seed);
  config.num_layers = 2;
  config.eidetic_tokens = places;
  return config;
}

// log ε of 1 and 0.01 lie at ±a of the cut between them.
TEST(SoftCut, WhatIsAdded) {
  const auto innovation = torch::tensor({{0.01, 1.0, 100.0, 7.0}}, at::kDouble);
  const auto there = torch::tensor({{true, true, true, false}});
  const auto bias = eidetic_bias({.innovation = innovation,
                                  .there = there,
                                  .beta = {},
                                  .cut = {.places = 2, .temperature = 1}});
  const double a = std::log(1 + 1e-6) - std::log(0.01 + 1e-6);
  EXPECT_NEAR(bias[0][0].item<double>(), -std::log1p(std::exp(a / 2)), 1e-12);
  EXPECT_NEAR(bias[0][1].item<double>(), -std::log1p(std::exp(-a / 2)), 1e-12);
  const auto added = [&](int64_t places) {
    return eidetic_bias({.innovation = innovation,
                         .there = there,
                         .beta = {},
                         .cut = {.places = places, .temperature = 1}});
  };
  EXPECT_EQ(added(3).abs().max().item<double>(), 0) << "three of three: nothing is cut off";
  EXPECT_FALSE(added(4).defined());
  EXPECT_FALSE(added(0).defined());
}

// Equal ε at the cut get the same bias, and NaN ranks last: it makes no other bias NaN.
TEST(SoftCut, TiesAndNaN) {
  const auto beta = torch::ones({}, at::kDouble);
  const auto innovation = torch::tensor({{2.0, double{NAN}, 2.0, 2.0}}, at::kDouble);
  const auto bias = eidetic_bias({.innovation = innovation,
                                  .there = at::ones({1, 4}, at::kBool),
                                  .beta = beta,
                                  .cut = {.places = 2, .temperature = 0.5}});
  for (const int64_t j : {0, 2, 3}) EXPECT_NEAR(bias[0][j].item<double>(), -std::log(2), 1e-12);
}

// ∂b_j/∂ε_j = (β (1 − [kept] / n) + σ(−z_j) / τ) / (ε_j + 1e-6), z = (log ε − c) / τ with c held;
// through the mean also every kept i ≠ j: −β / n / (ε_i + 1e-6).
TEST(SoftCut, GradientHoldsTheLevelFixed) {
  torch::manual_seed(4);
  const double beta = 0.7, tau = 0.4;
  const int64_t m = 9, places = 4;
  auto innovation = (at::rand({1, m}, at::kDouble) + 0.1).requires_grad_(true);
  const auto weight = at::randn({1, m}, at::kDouble);
  const auto bias = eidetic_bias({.innovation = innovation,
                                  .there = at::ones({1, m}, at::kBool),
                                  .beta = torch::tensor(beta, at::kDouble),
                                  .cut = {.places = places, .temperature = tau}});
  (bias * weight).sum().backward();
  const auto e = innovation.detach()[0] + 1e-6;
  const auto sorted = std::get<0>(e.sort(0, /*descending=*/true)).log();
  const double level = (sorted[places - 1] + sorted[places]).item<double>() / 2;
  for (int64_t i = 0; i < m; ++i) {
    const double log_e = std::log(e[i].item<double>()), w = weight[0][i].item<double>();
    const double z = (log_e - level) / tau;
    double slope = w * (beta + 1 / (1 + std::exp(z)) / tau);
    if (log_e > level) slope -= beta / places * weight.sum().item<double>();
    EXPECT_NEAR(innovation.grad()[0][i].item<double>(), slope / e[i].item<double>(), 1e-10) << i;
  }
}

// What the level adds to ∂/∂log ε is the same for every member, and takes away their sum.
TEST(SoftCut, MovingLevelIsFreeOfScale) {
  torch::manual_seed(5);
  const int64_t m = 9, places = 4;
  const auto values = at::rand({2, m}, at::kDouble) + 0.1;
  values[1][2].fill_(INFINITY);
  const auto there = at::ones({2, m}, at::kBool);
  there[0][8].fill_(false);
  const auto weight = at::randn({2, m}, at::kDouble);
  const auto with = [&](bool level_moves) {
    const auto innovation = values.clone().requires_grad_(true);
    const auto bias =
        eidetic_bias({.innovation = innovation,
                      .there = there,
                      .beta = {},
                      .cut = {.places = places, .temperature = 0.4, .level_moves = level_moves}});
    (bias * weight).sum().backward();
    return std::array{bias.detach(), innovation.grad() * (values + 1e-6)};
  };
  const auto held = with(false), moving = with(true);
  EXPECT_TRUE(held[0].equal(moving[0])) << "the bias itself";
  EXPECT_EQ(held[0][0][8].item<double>(), 0) << "an empty place";
  for (const int64_t set : {0, 1}) {
    double sum = 0, sum_held = 0;
    std::set<int64_t> shifts;  // in 1e-9
    for (int64_t j = 0; j < m; ++j) {
      if (!there[set][j].item<bool>() || std::isinf(values[set][j].item<double>())) continue;
      const double now = moving[1][set][j].item<double>(), before = held[1][set][j].item<double>();
      sum += now;
      sum_held += before;
      shifts.insert(std::llround(1e9 * (now - before)));
    }
    EXPECT_NEAR(sum, 0, 1e-12);
    EXPECT_GT(std::abs(sum_held), 0.1) << "held: a factor of all ε has a gradient";
    EXPECT_LE(*shifts.rbegin() - *shifts.begin(), 1) << "not the same for every member";
  }
}

// As the temperature goes to 0 the wide model becomes the one that will be used.
TEST(SoftCut, ColdIsTheModelWithFewerPlaces) {
  torch::NoGradGuard no_grad;
  test::Random random(3);
  double largest = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const auto wide = wide_config(seed, random.in(3, 12));
    auto used = wide;
    used.eidetic_tokens = random.in(1, wide.eidetic_tokens - 1);
    SCOPED_TRACE(fmt::format("seed {}: {}, cut to {}", seed, describe(wide), used.eidetic_tokens));
    const auto parameters = strong_parameters(wide, seed);
    const auto ids = at::randint(wide.vocab_size, {2, 37}, at::kLong);
    CallOptions cold;
    cold.cut = {.places = used.eidetic_tokens, .temperature = 1e-9};
    const auto expected = Model(used, parameters).forward(ids).hidden;
    EXPECT_LT(relative_error(Model(wide, parameters).forward(ids, {}, cold).hidden, expected),
              kRounding);
    cold.cut = {};
    largest = std::max(
        largest, relative_error(Model(wide, parameters).forward(ids, {}, cold).hidden, expected));
  }
  EXPECT_GT(largest, 1e-3) << "without the cut the two must differ";
}

TEST(SoftCut, SplitsStepsAndPacks) {
  torch::NoGradGuard no_grad;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const auto config = wide_config(seed, 7);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, describe(config)));
    const Model model(config, strong_parameters(config, seed));
    const int64_t L = 23, begins = 9;  // a second document begins there
    const auto ids = at::randint(config.vocab_size, {2, L}, at::kLong);
    const auto read = [&](int64_t at, const std::vector<int64_t>& counts) {
      State state;
      std::vector<at::Tensor> hidden;
      for (const auto count : counts) {
        CallOptions call;
        call.cut = {.places = 3, .temperature = 0.3};
        for (int64_t b = 0; b < 2; ++b)
          for (int64_t t = at; t < at + count; ++t) call.documents.push_back(t >= begins);
        const auto out = model.forward(ids.narrow(1, at, count), state, call);
        hidden.push_back(out.hidden);
        state = out.state;
        at += count;
      }
      return at::cat(hidden, 1);
    };
    const auto whole = read(0, {L});
    for (int64_t split = 1; split < L; ++split)
      EXPECT_LT(relative_error(read(0, {split, L - split}), whole), kRounding) << split;
    EXPECT_LT(relative_error(read(0, std::vector<int64_t>(L, 1)), whole), kRounding);
    EXPECT_LT(relative_error(read(begins, {L - begins}), whole.narrow(1, begins, L - begins)),
              kRounding)
        << "the second document alone";
  }
}

at::Tensor readout(const at::Tensor& x) {
  return (x.flatten() * at::arange(1, x.numel() + 1, x.options()).sin()).sum();
}

// Segments and recomputed layers have the gradient of the whole, and the cut is a part of it.
TEST(SoftCut, GradientsOfTheWhole) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const auto config = wide_config(seed, 6);
    SCOPED_TRACE(describe(config));
    const auto ids = at::randint(config.vocab_size, {2, 24}, at::kLong);
    const auto gradients = [&](int64_t segment, bool recompute, double temperature) {
      Model model(config, strong_parameters(config, seed));
      model.require_gradients();
      CallOptions call;
      call.cut = {.places = 2, .temperature = temperature};
      call.recompute = recompute;
      State state;
      std::vector<at::Tensor> hidden;
      for (int64_t at = 0; at < ids.size(1); at += segment) {
        const auto out = model.forward(ids.narrow(1, at, segment), state, call);
        hidden.push_back(out.hidden);
        state = out.state;
      }
      readout(at::cat(hidden, 1)).backward();
      return model.parameter("layers.0.ssm.out_proj.weight").grad();
    };
    const auto whole = gradients(24, false, 0.3);
    EXPECT_LT(relative_error(gradients(4, false, 0.3), whole), 1e-8);
    EXPECT_LT(relative_error(gradients(12, true, 0.3), whole), 1e-8);
    EXPECT_GT(relative_error(gradients(24, false, 0.6), whole), 1e-6);
  }
}

// In float on the fused kernels, against the reference, with the same selection.
TEST(SoftCut, FusedIsTheReference) {
  torch::NoGradGuard no_grad;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const auto config = wide_config(seed, 7);
    SCOPED_TRACE(describe(config));
    const Model model(config, strong_parameters(config, seed, at::kFloat));
    const auto ids = at::randint(config.vocab_size, {2, 40}, at::kLong);
    CallOptions call;
    call.cut = {.places = 3, .temperature = 0.3};
    const auto fused = model.forward(ids, {}, call);
    call.selections = fused.selections;
    const ReferenceOnly reference;
    // Two float computations of some hundred roundings of 6e-8 each.
    EXPECT_LT(relative_error(model.forward(ids, {}, call).hidden, fused.hidden), 1e-4);
  }
}

}  // namespace
}  // namespace bmojo::nn
