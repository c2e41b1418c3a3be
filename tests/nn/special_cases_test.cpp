// Every baseline is a configuration of the one layer. Each row of docs/model.md, "Special cases",
// against torch's own attention or a composition of parts; Mamba and Mistral also against
// transformers (tests/cli/test_hugging_face.py), the interleaved form in oracle_test.cpp.

#include <gtest/gtest.h>

#include "bmojo/nn/ops/selective_scan.h"
#include "tests/nn/oracle.h"
#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

using test::Oracle, test::random_config, test::relative_error, test::strong_parameters;

constexpr double kRounding = 1e-10;  // double against double

at::Tensor run_layer(const Model& model, const at::Tensor& x) {
  const Layout layout(model.config(), Sequences{x.size(0), x.size(1), {}, {}}, {}, x.options());
  const auto& layer = model.layers()[0];
  return layer.forward(x, layout, layer.initial_state(x.size(0))).x;
}

// x + W_o softmax(q k / √d + mask) v + MLP by torch's scaled_dot_product_attention. Extra keys are
// rows [B, n, D] that stand before the others and are masked by `extra_mask` [L, n].
at::Tensor torch_attention(const Model& model, const at::Tensor& x, const at::Tensor& mask,
                           const at::Tensor& extra = {}, const at::Tensor& extra_mask = {}) {
  const auto& c = model.config();
  const auto get = [&](const std::string& leaf) { return model.parameter("layers.0." + leaf); };
  const auto u = rms_norm(x, get("norm.weight"), c.norm_eps);
  const auto rows = extra.defined() ? at::cat({extra, u}, 1) : u;
  const auto heads = [&](const at::Tensor& input, const char* leaf, int64_t count) {
    return at::linear(input, get(leaf)).unflatten(-1, {count, c.head_size}).transpose(1, 2);
  };
  auto q = heads(u, "attention.q_proj.weight", c.num_heads);
  auto k = heads(rows, "attention.k_proj.weight", c.num_kv_heads);
  const auto v = heads(rows, "attention.v_proj.weight", c.num_kv_heads);
  if (c.rope_theta > 0) {
    const auto position = at::arange(x.size(1)).expand({x.size(0), -1});
    const auto angles = rotary_angles(position, c.head_size, c.rope_theta, q.scalar_type());
    q = rotate(q.transpose(1, 2), angles).transpose(1, 2);
    k = rotate(k.transpose(1, 2), angles).transpose(1, 2);
  }
  const int64_t repeat = c.num_heads / c.num_kv_heads;
  const auto out = at::scaled_dot_product_attention(
      q, k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1),
      extra_mask.defined() ? at::cat({extra_mask, mask}, 1) : mask);
  auto y = x + at::linear(out.transpose(1, 2).flatten(2), get("attention.o_proj.weight"));
  if (c.mlp_size == 0) return y;
  const auto n = rms_norm(y, get("mlp.norm.weight"), c.norm_eps);
  return y + at::linear(at::silu(at::linear(n, get("mlp.gate_proj.weight"))) *
                            at::linear(n, get("mlp.up_proj.weight")),
                        get("mlp.down_proj.weight"));
}

at::Tensor causal_mask(int64_t L, int64_t w) {
  const auto i = at::arange(L).unsqueeze(1), j = at::arange(L).unsqueeze(0);
  return (j <= i).logical_and(i - j < w);
}

TEST(SpecialCases, SlidingWindowAndFullAttention) {
  torch::NoGradGuard no_grad;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    auto config = random_config(seed);
    config.pattern = "attention";
    const bool full = seed % 3 == 0;
    if (full) config.window = 0;
    const Model model(config, strong_parameters(config, seed));
    const auto x = at::randn({2, 21, config.hidden_size}, at::kDouble);
    const auto mask = causal_mask(21, full ? 1000 : config.window);
    EXPECT_LT(relative_error(run_layer(model, x), torch_attention(model, x, mask)), kRounding)
        << "window " << config.window;
  }
}

TEST(SpecialCases, SsmAloneIsMamba) {
  torch::NoGradGuard no_grad;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    auto config = random_config(seed);
    config.mlp_size = 0;
    auto mamba = config;
    mamba.pattern = "ssm";
    const auto parameters = strong_parameters(config, seed);
    const auto x = at::randn({1, 15, config.hidden_size}, at::kDouble);
    const auto expected = run_layer(Model(mamba, parameters), x);
    // A B'MOJO layer whose attention writes nothing is Mamba, too.
    config.fading_residual = true;
    for (const auto& [name, tensor] : parameters)
      if (name.ends_with("o_proj.weight")) tensor.zero_();
    EXPECT_LT(relative_error(run_layer(Model(config, parameters), x), expected), kRounding);
    Oracle oracle(mamba, model::LayerKind::ssm, parameters);
    for (int64_t t = 0; t < 15; ++t)
      EXPECT_LT(relative_error(expected[0][t], oracle.step(x[0][t])), kRounding);
  }
}

TEST(SpecialCases, HybridAlternates) {
  torch::NoGradGuard no_grad;
  auto config = random_config(4);
  config.pattern = "ssm,attention";
  config.num_layers = 4;
  const auto parameters = strong_parameters(config, 4);
  const Model model(config, parameters);
  const auto ids = at::randint(config.vocab_size, {1, 20}, at::kLong);
  auto x = at::embedding(model.parameter("embedding.weight"), ids);
  for (int64_t i = 0; i < 4; ++i) {
    Oracle oracle(config, i % 2 ? model::LayerKind::attention : model::LayerKind::ssm, parameters,
                  i);
    std::vector<at::Tensor> out;
    for (int64_t t = 0; t < 20; ++t) out.push_back(oracle.step(x[0][t]));
    x = at::stack(out).unsqueeze(0);
  }
  EXPECT_LT(relative_error(model.forward(ids).hidden,
                           rms_norm(x, model.parameter("norm.weight"), config.norm_eps)),
            kRounding);
}

// m_e = 0 leaves window and fading tokens: sliding attention with the m_f outputs before the chunk
// as further keys.
TEST(SpecialCases, NoEideticTokensIsBmojoF) {
  torch::NoGradGuard no_grad;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    auto config = random_config(seed);
    config.eidetic_tokens = 0;
    config.fading_mode = "chunk";
    config.fading_tied = config.fading_residual = true;
    config.rope_theta = config.mlp_size = 0;
    config.fading_tokens = 1 + static_cast<int64_t>(seed % 6);
    const auto parameters = strong_parameters(config, seed);
    const Model model(config, parameters);
    const int64_t L = 22, w = config.window;
    const auto x = at::randn({1, L, config.hidden_size}, at::kDouble);
    auto alone = config;
    alone.pattern = "ssm";
    const auto y = run_layer(Model(alone, parameters), x) - x;
    const auto keys =
        rms_norm(y, model.parameter("layers.0.attention.fading_norm.weight"), config.norm_eps);
    const auto s = (at::arange(L) / w).floor().to(at::kLong).unsqueeze(1) * w,
               j = at::arange(L).unsqueeze(0);
    const auto seen = (j < s).logical_and(j >= s - config.fading_tokens);
    const auto expected = torch_attention(model, x, causal_mask(L, w), keys, seen) + y;
    EXPECT_LT(relative_error(run_layer(model, x), expected), kRounding) << "seed " << seed;
  }
}

// With room for every token and no bias, nothing is forgotten: full causal attention over u, plus
// the fading tokens.
TEST(SpecialCases, RoomForAllIsFullAttention) {
  torch::NoGradGuard no_grad;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    auto config = random_config(seed);
    config.eidetic_tokens = 22;
    config.innovation_bias = false;
    config.fading_mode = "chunk";
    config.fading_tied = config.fading_residual = true;
    config.rope_theta = config.mlp_size = 0;
    const auto parameters = strong_parameters(config, seed);
    const Model model(config, parameters);
    const int64_t L = 22, w = config.window;
    const auto x = at::randn({1, L, config.hidden_size}, at::kDouble);
    auto alone = config;
    alone.pattern = "ssm";
    const auto y = run_layer(Model(alone, parameters), x) - x;
    const auto keys =
        rms_norm(y, model.parameter("layers.0.attention.fading_norm.weight"), config.norm_eps);
    const auto s = (at::arange(L) / w).floor().to(at::kLong).unsqueeze(1) * w,
               j = at::arange(L).unsqueeze(0);
    const auto seen = (j < s).logical_and(j >= s - config.fading_tokens);
    // Past the chunk border a token is seen from memory as soon as it leaves the window, but a
    // token of the running chunk never leaves the window: every past token is seen exactly once.
    const auto expected = torch_attention(model, x, causal_mask(L, 1000), keys, seen) + y;
    EXPECT_LT(relative_error(run_layer(model, x), expected), kRounding) << "seed " << seed;
  }
}

// The paper loads h_0 by feeding N extra tokens: token i adds column i of h_0 and forgets nothing.
TEST(SpecialCases, InitialStateIsNExtraTokens) {
  torch::manual_seed(1);
  const int64_t L = 9, E = 3, N = 4;
  const auto a = at::rand({1, L, E, N}, at::kDouble), b = at::randn({1, L, E, N}, at::kDouble);
  const auto h0 = at::randn({1, E, N}, at::kDouble);
  const auto columns = at::eye(N, at::kDouble).view({1, N, 1, N}) * h0.unsqueeze(1);
  const auto loaded = linear_scan(at::cat({at::ones({1, N, E, N}, at::kDouble), a}, 1),
                                  at::cat({columns, b}, 1), at::zeros_like(h0));
  EXPECT_LT(relative_error(loaded.narrow(1, N, L), linear_scan(a, b, h0)), 1e-13);
}

}  // namespace
}  // namespace bmojo::nn
