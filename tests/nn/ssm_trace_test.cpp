// poles() and time_constants() tell what the SSM of a layer did to its state.

#include "bmojo/nn/ssm_trace.h"

#include <gtest/gtest.h>

#include "bmojo/base/error.h"
#include "bmojo/nn/ops/rows.h"
#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

using test::random_config, test::relative_error, test::strong_parameters;

struct Run {
  SsmTrace ssm;
  at::Tensor h;  // [1, E, N] after the last token
};

// One layer over random tokens, from a state of its SSM.
Run run(const Model& model, const at::Tensor& ids, const at::Tensor& h0) {
  const auto& layer = model.layers()[0];
  const auto x = take_rows(model.parameter("embedding.weight"), ids.flatten()).unsqueeze(0);
  const Layout layout(model.config(), Sequences{1, ids.size(1), {}, {}}, {}, x.options());
  auto state = layer.initial_state(1);
  state.ssm = h0;
  LayerCall call;
  call.keep_ssm = true;
  const auto out = layer.forward(x, layout, state, call);
  return {out.ssm, out.state.ssm};
}

// A state is multiplied by the pole of each token and by nothing else, so a difference between two
// first states is multiplied by the product of all. Δ, B and C do not see the state.
TEST(SsmTrace, AStateIsMultipliedByThePolesOfItsTokens) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    auto config = random_config(seed);
    config.pattern = seed % 2 == 0 ? "bmojo" : "ssm";
    const Model model(config, strong_parameters(config, seed));
    torch::manual_seed(seed);
    const auto ids = at::randint(config.vocab_size, {1, 6}, at::kLong);
    const auto h0 = at::randn({1, config.ssm_inner_size, config.ssm_state_size}, at::kDouble);
    const auto zero = run(model, ids, at::zeros_like(h0)), other = run(model, ids, h0);
    // Double; the difference cancels what the tokens have added, which may be far larger.
    const auto bound = 1e-12 * (1 + zero.h.abs().max().item<double>());
    const auto expected = poles(zero.ssm).prod(1) * h0;
    EXPECT_LT((other.h - zero.h - expected).abs().max().item<double>(), bound);
    EXPECT_EQ(zero.ssm.y.sizes(), (at::IntArrayRef{1, 6, config.hidden_size}));
  }
}

// A pole p stands for the time constant τ where p^τ = 1/e.
TEST(SsmTrace, AfterATimeConstantOneInEIsLeft) {
  const auto config = random_config(3);
  const Model model(config, strong_parameters(config, 3));
  const auto ssm = run(model, at::arange(5, at::kLong).view({1, 5}),
                       at::zeros({1, config.ssm_inner_size, config.ssm_state_size}, at::kDouble))
                       .ssm;
  const auto left = at::pow(poles(ssm), time_constants(ssm));
  // The rounding of a pole, 1e-16, counts τ times, and τ goes up to 1e7 here.
  EXPECT_LT((left - std::exp(-1)).abs().max().item<double>(), 1e-8);
  // In fp32 this pole is 1, but it fades nevertheless.
  SsmTrace slow{.dt = at::full({1, 1, 1}, -20.0, at::kFloat),
                .dt_bias = at::zeros({1}, at::kFloat),
                .A = at::full({1, 1}, -1.0, at::kFloat),
                .y = {}};
  EXPECT_EQ(poles(slow).item<double>(), 1);
  EXPECT_NEAR(time_constants(slow).item<double>() / std::exp(20), 1, 1e-5);
}

// Nothing is kept, and nothing else changes, where nobody asked.
TEST(SsmTrace, IsKeptOnRequest) {
  auto config = random_config(5);
  config.num_layers = 3;
  config.pattern = "bmojo,ssm,attention";
  model::validate(config);
  const Model model(config, strong_parameters(config, 5));
  const auto ids = at::arange(5, at::kLong).view({1, 5});
  CallOptions call;
  EXPECT_TRUE(model.forward(ids, {}, call).ssms.empty());
  call.keep_ssm = true;
  const auto out = model.forward(ids, {}, call);
  ASSERT_EQ(out.ssms.size(), 3);
  EXPECT_TRUE(out.ssms[0].dt.defined() && out.ssms[1].dt.defined() && !out.ssms[2].dt.defined());
  EXPECT_TRUE(test::same_bits(out.hidden, model.forward(ids).hidden));
  try {
    poles(out.ssms[2]);
    FAIL();
  } catch (const base::Error& error) {
    EXPECT_STREQ(error.what(), "poles: the SSM must be kept by its call, got none");
  }
}

}  // namespace
}  // namespace bmojo::nn
