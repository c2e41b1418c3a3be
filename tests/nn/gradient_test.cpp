// Gradients by finite differences in double, through every parameter, the input and the carried
// state. The selection is held fixed: its choice has no gradient, and a difference must not cross
// it.

#include <gtest/gtest.h>

#include "bmojo/nn/ops/selective_scan.h"
#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

using test::describe, test::random_config, test::strong_parameters;

// A scalar of everything in x: each element with its own weight.
at::Tensor readout(const at::Tensor& x) {
  return (x.flatten() * at::arange(1, x.numel() + 1, x.options()).sin()).sum();
}

// Differences over four points err by step⁴ and by rounding / step: far below the bound.
void expect_gradient(const std::string& name, at::Tensor& value, const at::Tensor& gradient,
                     const std::function<at::Tensor()>& loss, int64_t most = 4) {
  ASSERT_TRUE(gradient.defined()) << name;
  torch::NoGradGuard no_grad;
  const double step = 1e-5, scale = std::max(1.0, gradient.abs().max().item<double>());
  auto flat = value.detach().view(-1);
  const int64_t stride = std::max<int64_t>(1, flat.numel() / most);
  for (int64_t i = 0; i < flat.numel(); i += stride) {
    const double kept = flat[i].item<double>();
    const auto at = [&](double offset) {
      flat[i] = kept + offset;
      return loss().item<double>();
    };
    const double slope =
        (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step);
    flat[i] = kept;
    EXPECT_NEAR(gradient.reshape(-1)[i].item<double>(), slope, 2e-7 * scale)
        << name << "[" << i << "]";
  }
}

TEST(Gradient, EveryParameterAndTheCarriedState) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    auto config = random_config(seed);
    if (seed % 2) config.innovation_bias = config.fading_residual = true;
    config.norm_eps = 0.05;  // the norm of a small output curves less: differences stay exact
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, describe(config)));
    Model model(config, strong_parameters(config, seed));
    model.require_gradients();
    const int64_t L = 19, split = 3 + static_cast<int64_t>(seed % 11);
    auto x = at::randn({2, L, config.hidden_size}, at::kDouble).requires_grad_(true);
    const auto ids = at::zeros({2, L}, at::kLong);
    std::vector<int64_t> documents(2 * L, 0);
    for (int64_t t = 11; t < L; ++t) documents[L + t] = 1;  // the second row packs two documents
    const auto part = [&](int64_t from, int64_t count) {
      std::vector<int64_t> out;
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t t = from; t < from + count; ++t) out.push_back(documents[b * L + t]);
      return out;
    };
    // Two segments: what the first does to the second passes through the carried state alone.
    std::vector<at::Tensor> first_choice, second_choice;
    const auto loss = [&] {
      const auto first = model.forward_embedded(x.narrow(1, 0, split), ids.narrow(1, 0, split), {},
                                                {{}, part(0, split), first_choice});
      const auto second =
          model.forward_embedded(x.narrow(1, split, L - split), ids.narrow(1, split, L - split),
                                 first.state, {{}, part(split, L - split), second_choice});
      first_choice = first.selections;
      second_choice = second.selections;
      auto total = readout(first.hidden) + readout(second.hidden);
      for (const auto& [name, tensor] : test::tensors_of(second.state))
        if (tensor.is_floating_point()) total = total + readout(tensor);
      return total;
    };
    loss().backward();
    expect_gradient("x", x, x.grad(), loss, 16);
    for (auto [name, tensor] : model.parameters()) {
      if (name == "embedding.weight" || name == "head.weight") continue;
      // A parameter nothing reads has no gradient to check: fading keys without fading tokens.
      const bool unread = (name.find("fading_") != std::string::npos && config.fading_tokens == 0);
      if (!unread) expect_gradient(name, tensor, tensor.grad(), loss);
    }
  }
}

// One backward over n segments with the state carried = one backward over the whole.
TEST(Gradient, SegmentsGiveTheGradientOfTheWhole) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    auto config = random_config(seed);
    config.num_layers = 2;
    SCOPED_TRACE(describe(config));
    const auto parameters = strong_parameters(config, seed);
    const auto ids = at::randint(config.vocab_size, {2, 24}, at::kLong);
    const auto gradients = [&](int64_t segment) {
      Model model(config, parameters);
      model.require_gradients();
      for (const auto& [name, tensor] : model.parameters()) tensor.mutable_grad() = at::Tensor();
      State state;
      std::vector<at::Tensor> logits;
      for (int64_t at = 0; at < ids.size(1); at += segment) {
        const auto out = model.forward(ids.narrow(1, at, segment), state);
        logits.push_back(model.logits(out.hidden));
        state = out.state;
      }
      readout(at::cat(logits, 1)).backward();
      std::vector<at::Tensor> all;
      for (const auto& [name, tensor] : model.parameters())
        all.push_back(tensor.grad().defined() ? tensor.grad().clone() : at::zeros_like(tensor));
      return all;
    };
    const auto whole = gradients(24), segments = gradients(4);
    for (size_t i = 0; i < whole.size(); ++i)
      EXPECT_LT(test::relative_error(segments[i], whole[i]), 1e-8) << parameters[i].first;
  }
}

// Truncated back-propagation: the same values, and nothing that leads back.
TEST(Gradient, DetachCutsTheWholeState) {
  auto config = random_config(1);
  config.window = config.eidetic_tokens = 4;
  config.fading_tokens = 3;
  Model model(config, strong_parameters(config, 1));
  model.require_gradients();
  const auto state = model.forward(at::randint(config.vocab_size, {2, 13}, at::kLong)).state;
  const auto kept = test::tensors_of(state), cut = test::tensors_of(detach(state));
  ASSERT_EQ(cut.size(), kept.size());
  for (size_t i = 0; i < kept.size(); ++i) {
    const auto& [name, tensor] = kept[i];
    EXPECT_EQ(tensor.requires_grad(), tensor.is_floating_point()) << name;
    EXPECT_FALSE(cut[i].second.requires_grad()) << name;
    EXPECT_TRUE(at::equal(cut[i].second, tensor)) << name;
  }
  EXPECT_EQ(detach(state).cursor.position, state.cursor.position);
}

TEST(Gradient, LinearScan) {
  torch::manual_seed(3);
  for (const int64_t L : {1, 2, 3, 4, 7, 16, 37, 101}) {
    auto a = at::rand({2, L, 3, 2}, at::kDouble).requires_grad_(true);
    auto b = at::randn({2, L, 3, 2}, at::kDouble).requires_grad_(true);
    auto h0 = at::randn({2, 3, 2}, at::kDouble).requires_grad_(true);
    const auto h = linear_scan(a, b, h0);
    auto expected = h0.detach();
    for (int64_t t = 0; t < L; ++t) {
      expected = a.detach().select(1, t) * expected + b.detach().select(1, t);
      EXPECT_LT(test::relative_error(h.select(1, t), expected), 1e-13) << L << " at " << t;
    }
    const auto loss = [&] { return readout(linear_scan(a, b, h0)); };
    loss().backward();
    expect_gradient("a", a, a.grad(), loss, 30);
    expect_gradient("b", b, b.grad(), loss, 30);
    expect_gradient("h0", h0, h0.grad(), loss, 30);
  }
}

// Over two segments, through the carried state: the same gradients as when everything is kept.
TEST(Gradient, RecomputedLayersGiveTheSame) {
  for (const auto type : {at::kDouble, at::kFloat})
    for (uint64_t seed = 0; seed < 6; ++seed) {
      auto config = random_config(seed);
      config.num_layers = 3;
      if (seed % 2) config.pattern = "bmojo,ssm,attention";
      if (seed % 2) config.innovation_bias = true;
      SCOPED_TRACE(fmt::format("seed {}: {}", seed, describe(config)));
      const auto gradients = [&](bool recompute) {
        Model model(config, strong_parameters(config, seed, type));
        model.require_gradients();
        const auto ids = (at::arange(38, at::kLong) * 7 % config.vocab_size).view({2, 19});
        CallOptions call;
        call.recompute = recompute;
        const auto first = model.forward(ids.narrow(1, 0, 8), {}, call);
        const auto second = model.forward(ids.narrow(1, 8, 11), first.state, call);
        (readout(first.hidden) + readout(second.hidden)).backward();
        std::vector<at::Tensor> out;
        for (const auto& [name, tensor] : model.parameters()) out.push_back(tensor.grad());
        return out;
      };
      const auto kept = gradients(false), again = gradients(true);
      for (size_t i = 0; i < kept.size(); ++i) {
        ASSERT_EQ(kept[i].defined(), again[i].defined()) << i;
        if (!kept[i].defined()) continue;
        EXPECT_LE(test::relative_error(again[i], kept[i]), type == at::kDouble ? 1e-12 : 1e-5) << i;
      }
    }
}

}  // namespace
}  // namespace bmojo::nn
