// The chunked layer against two oracles: the token-by-token rule, and the paper's interleaved form.

#include "tests/nn/oracle.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>

#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

using test::describe, test::Oracle, test::random_config, test::relative_error,
    test::strong_parameters;

// Double against double: rounding alone, over a few hundred operations.
constexpr double kRounding = 1e-10;

std::vector<int64_t> members(const at::Tensor& positions) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < positions.size(0); ++i)
    if (const auto p = positions[i].item<int64_t>(); p != kNowhere) out.push_back(p);
  return out;
}

void expect_oracle(const model::Config& config, int64_t length, uint64_t seed, SoftCut cut = {}) {
  torch::NoGradGuard no_grad;
  SCOPED_TRACE(fmt::format("seed {} length {}: {}", seed, length, describe(config)));
  const auto parameters = strong_parameters(config, seed);
  const Model model(config, parameters);
  const auto x = at::randn({1, length, config.hidden_size}, at::kDouble);
  const Layout layout(config, Sequences{1, length, {}, {}}, {}, at::kDouble);
  const auto kind = config.kind(0);
  const auto& layer = model.layers()[0];
  const auto out = layer.forward(x, layout, layer.initial_state(1), {{}, {}, cut});

  Oracle oracle(config, kind, parameters, 0, cut);
  for (int64_t t = 0; t < length; ++t) {
    const auto expected = oracle.step(x[0][t]);
    ASSERT_LT(relative_error(out.x[0][t], expected), kRounding) << "token " << t;
    if (kind != model::LayerKind::bmojo || config.eidetic_tokens == 0) continue;
    ASSERT_NEAR(out.innovation[0][t].item<double>(), oracle.innovation[t], kRounding);
    for (size_t i = 0; i < layout.pieces.size(); ++i) {
      if (layout.pieces[i].position + layout.pieces[i].count != t + 1) continue;
      ASSERT_EQ(members(out.selection[i]), oracle.running()) << "after token " << t;
    }
  }
}

TEST(Oracle, RandomLayers) {
  test::Random random(7);
  for (uint64_t seed = 0; seed < 120; ++seed)
    expect_oracle(random_config(seed), random.in(1, 45), seed);
}

TEST(Oracle, SoftCuts) {
  test::Random random(17);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    auto config = random_config(seed);
    config.eidetic_tokens = random.in(2, 12);
    const SoftCut cut{.places = random.in(1, config.eidetic_tokens),
                      .temperature = std::array{0.05, 0.3, 2.0}[seed % 3]};
    SCOPED_TRACE(fmt::format("cut at {} of {}", cut.places, config.eidetic_tokens));
    expect_oracle(config, random.in(1, 45), seed, cut);
  }
}

TEST(Oracle, EveryRule) {
  test::Random random(19);
  for (const char* rule : {"first", "recent", "random"})
    for (uint64_t seed = 0; seed < 16; ++seed) {
      SCOPED_TRACE(rule);
      auto config = random_config(seed);
      config.eidetic_rule = rule;
      expect_oracle(config, random.in(1, 45), seed);
    }
}

// The corners, each by name and not by luck.
TEST(Oracle, Corners) {
  struct Corner {
    const char* name;
    int64_t window, fading, eidetic, taps, length;
  };
  for (const Corner& corner :
       {Corner{"window of one", 1, 2, 3, 2, 12}, Corner{"more fading than window", 3, 8, 2, 3, 20},
        Corner{"fading over three windows", 2, 7, 2, 3, 21},
        Corner{"eidetic larger than the past", 4, 2, 100, 4, 18},
        Corner{"one token", 4, 2, 3, 4, 1}, Corner{"within the predictor's span", 2, 1, 2, 9, 5},
        Corner{"exactly one chunk", 5, 2, 3, 4, 5},
        Corner{"one token into a chunk", 5, 2, 3, 4, 16},
        Corner{"one token short of a chunk", 5, 2, 3, 4, 14}, Corner{"no fading", 4, 0, 3, 2, 19},
        Corner{"B'MOJO-F", 4, 3, 0, 2, 19},
        Corner{"window longer than the text", 64, 4, 4, 4, 19}}) {
    SCOPED_TRACE(corner.name);
    for (const char* mode : {"chunk", "sliding"}) {
      auto config = random_config(3);
      config.window = corner.window;
      config.fading_tokens = corner.fading;
      config.eidetic_tokens = corner.eidetic;
      config.predictor_taps = corner.taps;
      config.fading_mode = mode;
      config.innovation_bias = config.fading_residual = true;
      expect_oracle(config, corner.length, 11);
    }
  }
}

TEST(Oracle, OtherKindsOfLayer) {
  for (const char* pattern : {"ssm", "attention"})
    for (uint64_t seed = 0; seed < 20; ++seed) {
      auto config = random_config(seed);
      config.pattern = pattern;
      if (seed % 4 == 0) config.window = 0;
      expect_oracle(config, 17 + static_cast<int64_t>(seed), seed);
    }
}

// A constant SSM output of zero makes every innovation exactly 0: the earliest tokens stay.
TEST(Oracle, ExactTies) {
  auto config = random_config(5);
  config.window = 3;
  config.eidetic_tokens = 4;
  config.fading_residual = true;
  config.ssm_bias = false;
  const auto parameters = strong_parameters(config, 5);
  for (const auto& [name, tensor] : parameters)
    if (name.ends_with("ssm.out_proj.weight")) tensor.zero_();
  const Model model(config, parameters);
  const Layout layout(config, Sequences{1, 14, {}, {}}, {}, at::kDouble);
  const auto out = model.layers()[0].forward(at::randn({1, 14, config.hidden_size}, at::kDouble),
                                             layout, model.layers()[0].initial_state(1));
  EXPECT_EQ(members(out.selection[4]), (std::vector<int64_t>{0, 1, 2, 3}));
  // Also when the set is carried from call to call.
  State state;
  for (int64_t t = 0; t < 14; ++t)
    state = model.forward(at::full({1, 1}, t % config.vocab_size, at::kLong), state).state;
  EXPECT_EQ(members(state.layers[0].running.position[0]), (std::vector<int64_t>{0, 1, 2, 3}));
}

// The paper's form: plain sliding attention of span S = w + m_f + m_e over the sequence
// [memory_0 | chunk_0 | memory_1 | chunk_1 | …], every memory padded to m_f + m_e places, with
// duplicates (members still in the window) and empty places masked.
at::Tensor interleaved(const model::Config& c, const Parameters& parameters, const at::Tensor& x) {
  const auto get = [&](const std::string& leaf) {
    for (const auto& [name, tensor] : parameters)
      if (name == "layers.0.attention." + leaf) return tensor;
    return at::Tensor();
  };
  // y, ε and M come from an oracle of the same layer; attention is computed here.
  const int64_t L = x.size(0), w = c.window, m = c.fading_tokens + c.eidetic_tokens, S = w + m;
  auto as_ssm = c;
  as_ssm.pattern = "ssm";
  as_ssm.mlp_size = 0;
  Oracle ssm(as_ssm, model::LayerKind::ssm, parameters),
      all(c, model::LayerKind::bmojo, parameters);
  std::vector<at::Tensor> u, y, rows;  // rows: what keys and values are made of
  std::vector<double> bias;
  struct Place {
    int64_t position;  // of the token a place holds, -1: empty
    bool query, eidetic;
  };
  std::vector<Place> places;
  std::vector<int64_t> memory;
  for (const auto& [name, tensor] : parameters)
    if (name == "layers.0.norm.weight")
      for (int64_t t = 0; t < L; ++t) u.push_back(rms_norm(x[t], tensor, c.norm_eps));
  for (int64_t t = 0; t < L; ++t) {
    if (t % w == 0) {
      memory = all.running();
      for (int64_t j = 0; j < c.eidetic_tokens; ++j) {
        const bool held = j < std::ssize(memory);
        places.push_back({held ? memory[j] : -1, false, true});
        rows.push_back(held ? u[memory[j]] : at::zeros_like(u[0]));
        bias.push_back(held && c.innovation_bias ? all.eidetic_bias(memory[j], memory) : 0);
      }
      for (int64_t p = t - c.fading_tokens; p < t; ++p) {
        places.push_back({p < 0 ? -1 : p, false, false});
        rows.push_back(p < 0 ? at::zeros_like(u[0])
                             : rms_norm(y[p], get("fading_norm.weight"), c.norm_eps));
        bias.push_back(0);
      }
    }
    y.push_back(ssm.step(x[t]) - x[t]);
    all.step(x[t]);
    places.push_back({t, true, false});
    rows.push_back(u[t]);
    bias.push_back(0);
  }
  const auto sequence = at::stack(rows);
  const int64_t n = sequence.size(0), H = c.num_heads, G = c.num_kv_heads, d = c.head_size;
  const auto heads = [&](const char* leaf, int64_t count) {
    return at::linear(sequence, get(leaf)).view({n, count, d}).transpose(0, 1);
  };
  const auto q = heads("q_proj.weight", H);
  const auto k = heads("k_proj.weight", G).repeat_interleave(H / G, 0);
  const auto v = heads("v_proj.weight", G).repeat_interleave(H / G, 0);
  auto mask = at::full({n, n}, -INFINITY, at::kDouble);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = std::max<int64_t>(0, i - S + 1); j <= i; ++j) {
      const bool duplicate = places[j].eidetic && places[j].position > places[i].position - w;
      if (places[j].position >= 0 && !duplicate) mask[i][j] = bias[j];
    }
  const auto probability =
      at::softmax(at::matmul(q, k.transpose(1, 2)) / std::sqrt(d) + mask, -1).nan_to_num(0);
  const auto out = at::linear(at::matmul(probability, v).transpose(0, 1).reshape({n, H * d}),
                              get("o_proj.weight"));
  std::vector<at::Tensor> result;
  for (int64_t i = 0; i < n; ++i)
    if (places[i].query) {
      const int64_t t = places[i].position;
      result.push_back(x[t] + out[i] + (c.fading_residual ? y[t] : at::zeros_like(y[t])));
    }
  return at::stack(result);
}

TEST(Oracle, InterleavedForm) {
  test::Random random(23);
  for (uint64_t seed = 0; seed < 40; ++seed) {
    auto config = random_config(seed);
    config.fading_mode = "chunk";
    config.fading_tied = true;
    config.rope_theta = 0;
    config.mlp_size = 0;
    config.eidetic_tokens = random.in(1, 9);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, describe(config)));
    torch::NoGradGuard no_grad;
    const auto parameters = strong_parameters(config, seed);
    const Model model(config, parameters);
    const int64_t L = random.in(1, 30);
    const auto x = at::randn({1, L, config.hidden_size}, at::kDouble);
    const Layout layout(config, Sequences{1, L, {}, {}}, {}, at::kDouble);
    const auto& layer = model.layers()[0];
    EXPECT_LT(relative_error(layer.forward(x, layout, layer.initial_state(1)).x[0],
                             interleaved(config, parameters, x[0])),
              kRounding);
  }
}

}  // namespace
}  // namespace bmojo::nn
