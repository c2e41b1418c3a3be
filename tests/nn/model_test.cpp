// Types, devices, fresh weights, files, and what a caller may get wrong.

#include "bmojo/nn/model.h"

#include <gtest/gtest.h>

#include "bmojo/base/error.h"
#include "bmojo/model/init.h"
#include "bmojo/nn/ops/product.h"
#include "tests/nn/support.h"
#include "tests/temp_folder.h"

namespace bmojo::nn {
namespace {

using test::random_config, test::relative_error, test::strong_parameters;

model::Config small_config() {
  auto c = random_config(9);
  c.pattern = "bmojo,ssm,attention";
  c.num_layers = 3;
  c.window = 4;
  c.fading_tokens = 3;
  c.eidetic_tokens = 5;
  c.innovation_bias = c.fading_residual = true;
  return c;
}

TEST(Model, RunsOnTheMetaDevice) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    auto config = seed ? random_config(seed) : small_config();
    const Model model(config,
                      empty_parameters(config, at::TensorOptions(at::kMeta).dtype(at::kFloat)));
    const auto ids = at::zeros({2, 11}, at::TensorOptions(at::kMeta).dtype(at::kLong));
    auto out = model.forward(ids, {}, {{11, 7}, {}, {}});
    out = model.forward(ids, out.state);
    EXPECT_TRUE(out.hidden.is_meta());
    EXPECT_EQ(out.hidden.sizes(), at::IntArrayRef({2, 11, config.hidden_size}));
    EXPECT_EQ(model.logits(out.hidden).size(2), config.vocab_size);
  }
}

// The size of a preset without its memory: every shape of the 1.4B models is consistent.
TEST(Model, FullSizesHaveConsistentShapes) {
  for (const auto& name : model::preset_names()) {
    const auto config = model::preset(name);
    const Model model(config,
                      empty_parameters(config, at::TensorOptions(at::kMeta).dtype(at::kBFloat16)));
    const auto out =
        model.forward(at::zeros({1, 600}, at::TensorOptions(at::kMeta).dtype(at::kLong)));
    EXPECT_EQ(model.logits(out.hidden).size(2), 32000) << name;
  }
}

// bf16 keeps 8 bits of a number, so rounding to nearest errs by at most 2^-8 of it; fp32 keeps 24.
// The longest path from an embedding to an output has so many roundings:
//   ssm, up to y   13: norm 2, W_in 1, convolution 5, W_x 1, W_Δ 1, read-out 2, W_out 1
//   attention      9: norm 2, W_k 1, rotation 2, score, weight and mean 3, W_o 1
//   bmojo          both, and two sums; an ssm or attention layer has one
//   last norm      2
// Were they all of one sign, they would add up to 50 · 2^-8 = 0.2. They are independent and come to
// about √50 · 2^-8 = 0.03; the factor of 7 between is for what softmax and decay amplify: an error
// of a score is multiplied by the score. Sums run in fp32, exact beside bf16. In fp32 a sum of up
// to 32 channels rounds as often.
constexpr double kRoundings = (13 + 9 + 2) + (13 + 1) + (9 + 1) + 2;
constexpr double kBfloat16Bound = kRoundings * 0x1p-8, kFloatBound = kRoundings * 32 * 0x1p-24;

// fp32 and bf16 against double, with the same weights, exact in bf16, and the same selection.
TEST(Model, FloatAndBfloat16) {
  torch::NoGradGuard no_grad;
  auto config = small_config();  // rotary, no MLP
  config.hidden_size = config.ssm_inner_size = 32;
  config.ssm_conv_taps = 4;
  for (uint64_t seed = 1; seed < 5; ++seed) {
    SCOPED_TRACE(seed);
    const Model narrow(config, strong_parameters(config, seed, at::kBFloat16));
    const auto exact = narrow.to(at::TensorOptions().dtype(at::kDouble));
    const auto ids = at::randint(config.vocab_size, {2, 33}, at::kLong);
    const auto expected = exact.forward(ids);
    const CallOptions same{{}, {}, expected.selections};
    const auto with_fault = [&](const char* leaf, auto&& change) {
      auto parameters = exact.parameters();
      for (auto& [name, tensor] : parameters)
        if (name.ends_with(leaf)) tensor = change(tensor);
      return Model(config, parameters).forward(ids, {}, same).hidden;
    };
    const auto taps_swapped = with_fault("ssm.conv1d.weight", [](const at::Tensor& x) {
      return x.index_select(2, torch::tensor({0, 1, 3, 2}));
    });
    const auto skip_dropped = with_fault("ssm.D", [](auto& x) { return at::zeros_like(x); });
    for (const auto& [type, bound] :
         {std::pair{at::kFloat, kFloatBound}, {at::kBFloat16, kBfloat16Bound}}) {
      SCOPED_TRACE(c10::toString(type));
      const auto model = exact.to(at::TensorOptions().dtype(type));
      const auto out = model.forward(ids, {}, same);
      EXPECT_EQ(out.hidden.scalar_type(), type);
      EXPECT_LT(relative_error(out.hidden, expected.hidden), bound);
      EXPECT_GT(relative_error(out.hidden, taps_swapped), bound);
      EXPECT_GT(relative_error(out.hidden, skip_dropped), bound);
      EXPECT_EQ(out.innovations[0].scalar_type(), at::kFloat);
      EXPECT_EQ(model.forward(ids.narrow(1, 0, 1), out.state).hidden.scalar_type(), type);
    }
  }
}

// Of the width of two blocks of kernels::product, whose order torch's product does not have.
TEST(Model, LogitsAreTheProductOfEveryMap) {
  auto config = small_config();
  config.hidden_size = 700;
  const Model model(config, strong_parameters(config, 1, at::kFloat));
  const EveryProduct every;
  const auto hidden = at::randn({2, 3, 700});
  const auto& head = model.parameter(config.tied_embeddings ? "embedding.weight" : "head.weight");
  EXPECT_TRUE(
      test::same_bits(model.logits(hidden).flatten(0, 1), product(hidden.flatten(0, 1), head.t())));
  EXPECT_TRUE(test::same_bits(model.logits(hidden[1][2]), model.logits(hidden)[1][2]));
}

TEST(Model, FreshWeightsAreMambasAndGpt2s) {
  auto config = model::preset("bmojo-tiny");
  const auto parameters = fresh_parameters(config, 1);
  const Model model(config, parameters);
  const auto get = [&](const char* leaf) {
    return model.parameter(fmt::format("layers.1.{}", leaf));
  };
  const auto std_of = [&](const char* leaf) { return get(leaf).std().item<double>(); };
  EXPECT_NEAR(model.parameter("embedding.weight").std().item<double>(), 0.02, 2e-4);
  EXPECT_NEAR(model.parameter("embedding.weight").mean().item<double>(), 0, 1e-4);
  const double linear = 1 / std::sqrt(3.0 * 128), additions = 4 * 3;
  EXPECT_NEAR(std_of("attention.q_proj.weight"), linear, 0.02 * linear);
  EXPECT_NEAR(std_of("attention.o_proj.weight"), linear / std::sqrt(additions), 0.02 * linear);
  EXPECT_NEAR(std_of("ssm.out_proj.weight"), linear / std::sqrt(additions), 0.02 * linear);
  const auto delta = at::softplus(get("ssm.dt_proj.bias"));
  EXPECT_GE(delta.min().item<double>(), 0.00099);
  EXPECT_LE(delta.max().item<double>(), 0.1001);
  EXPECT_NEAR(delta.log().mean().item<double>(), std::log(0.01), 0.4);
  EXPECT_LT(relative_error(get("ssm.A_log")[3].exp(), at::arange(1, 17)), 1e-6);
  EXPECT_FALSE(at::equal(get("attention.q_proj.weight"),
                         model.parameter("layers.0.attention.q_proj.weight")));
  EXPECT_TRUE(at::equal(fresh_parameters(config, 1)[3].second, parameters[3].second));
  EXPECT_FALSE(at::equal(fresh_parameters(config, 2)[3].second, parameters[3].second));
}

TEST(Model, FileAndFreshWeightsAgree) {
  const test::TempFolder folder;
  const auto config = small_config();
  model::write_fresh_checkpoint(config, 7, folder.path() / "model");
  const auto loaded = load_parameters(model::Checkpoint(folder.path() / "model"));
  const auto fresh = fresh_parameters(config, 7);
  ASSERT_EQ(loaded.size(), fresh.size());
  for (size_t i = 0; i < loaded.size(); ++i)
    EXPECT_TRUE(at::equal(loaded[i].second, fresh[i].second)) << fresh[i].first;
}

// NaN in the input reaches the output and nothing throws; other rows stay clean.
TEST(Model, NanStaysInItsRow) {
  torch::NoGradGuard no_grad;
  const auto config = small_config();
  const Model model(config, strong_parameters(config, 1));
  const auto ids = at::zeros({2, 19}, at::kLong);
  auto x = at::randn({2, 19, config.hidden_size}, at::kDouble);
  x[0][5][0] = NAN;
  const auto hidden = model.forward_embedded(x, ids, {}, {}).hidden;
  EXPECT_FALSE(hidden[0].isfinite().all().item<bool>());
  EXPECT_TRUE(hidden[1].isfinite().all().item<bool>());
}

TEST(Model, ConstantOutputsHaveFiniteGradients) {
  auto config = small_config();
  config.pattern = "bmojo";
  config.num_layers = 1;
  auto parameters = strong_parameters(config, 1);
  for (auto& [name, tensor] : parameters)
    if (name.ends_with("ssm.out_proj.weight") || name.ends_with("ssm.out_proj.bias"))
      tensor.zero_();
  Model model(config, parameters);
  model.require_gradients();
  model.forward(at::zeros({1, 15}, at::kLong)).hidden.sum().backward();
  for (const auto& [name, tensor] : model.parameters()) {
    if (!tensor.grad().defined()) continue;
    EXPECT_TRUE(tensor.grad().isfinite().all().item<bool>()) << name;
  }
}

TEST(Model, MistakesAreNamed) {
  const auto config = small_config();
  const Model model(config, strong_parameters(config, 1));
  const auto ids = at::zeros({2, 3}, at::kLong);
  const auto says = [&](const char* text, auto&& call) {
    try {
      call();
      ADD_FAILURE() << "no error for: " << text;
    } catch (const base::Error& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  says("ids must be int64 [B, L]", [&] { model.forward(ids.to(at::kFloat)); });
  says("ids must be int64 [B, L]", [&] { model.forward(ids[0]); });
  says("with B and L at least 1", [&] { model.forward(ids.narrow(1, 0, 0)); });
  says("lengths must have one entry a sequence", [&] { model.forward(ids, {}, {{3}, {}, {}}); });
  says("lengths must be from 0 to 3, got 4", [&] { model.forward(ids, {}, {{3, 4}, {}, {}}); });
  says("at least one sequence", [&] { model.forward(ids, {}, {{0, 0}, {}, {}}); });
  says("documents must be [2, 3]", [&] { model.forward(ids, {}, {{}, {1}, {}}); });
  const auto state = model.forward(ids).state;
  says("state must have 1 sequences, got 2", [&] { model.forward(ids.narrow(0, 0, 1), state); });
  says("documents must be given from a sequence's first token on",
       [&] { model.forward(ids, state, {{}, {1, 1, 1, 1, 1, 1}, {}}); });
  auto fewer = config;
  fewer.eidetic_tokens = 2;
  says("at most 2 eidetic tokens, got 3",
       [&] { Model(fewer, strong_parameters(fewer, 1)).forward(ids, state); });
  says("ids must be from 0 to", [&] { model.forward(ids + config.vocab_size); });
  auto wider = config;
  wider.window = 2;
  says("keep the window it was made with",
       [&] { Model(wider, strong_parameters(wider, 1)).forward(ids, state); });
}

}  // namespace
}  // namespace bmojo::nn
