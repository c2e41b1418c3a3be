#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "bmojo/kernels/cpu.h"
#include "bmojo/model/tensors.h"
#include "bmojo/nn/model.h"

namespace bmojo::test {

// Weights under which a mistake shows: attention far from uniform, norms and biases far from their
// initial constants, decays of every strength.
inline nn::Parameters strong_parameters(const model::Config& config, uint64_t seed,
                                        at::ScalarType type = at::kDouble) {
  torch::manual_seed(seed);
  nn::Parameters parameters;
  for (const auto& spec : model::tensor_specs(config)) {
    const auto normal = at::randn(spec.shape, at::kDouble),
               uniform = at::rand(spec.shape, at::kDouble);
    const double fan_in = static_cast<double>(spec.shape.back());
    at::Tensor value;
    switch (spec.init) {
      case model::Init::ones:
        value = 0.5 + uniform;
        break;
      case model::Init::beta:
        value = 0.3 + uniform;
        break;
      case model::Init::zeros:
        value = 0.3 * normal;
        break;
      case model::Init::embedding:
        value = normal;
        break;
      case model::Init::dt_bias:
        value = normal - 1;
        break;
      case model::Init::a_log:
        value = normal;
        break;
      default:
        value = 1.5 * normal / std::sqrt(fan_in);
    }
    parameters.emplace_back(spec.name, value.to(type));
  }
  return parameters;
}

struct Random {
  std::mt19937_64 engine;
  explicit Random(uint64_t seed) : engine(seed) {}
  int64_t in(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine);
  }
  bool coin() { return in(0, 1) == 1; }
};

// A small B'MOJO of random shape and options: no dimension is a friendly number on purpose.
inline model::Config random_config(uint64_t seed) {
  Random random(seed);
  model::Config c;
  c.vocab_size = random.in(5, 30);
  c.hidden_size = random.in(3, 11);
  c.num_layers = 1;
  c.norm_eps = 1e-5;
  c.ssm_inner_size = random.in(1, 9);
  c.ssm_state_size = random.in(1, 5);
  c.ssm_conv_taps = random.in(1, 5);
  c.ssm_conv_bias = random.coin();
  c.ssm_dt_rank = random.in(1, 3);
  c.ssm_bias = random.coin();
  c.num_kv_heads = random.in(1, 2);
  c.num_heads = c.num_kv_heads * random.in(1, 3);
  c.head_size = 2 * random.in(1, 3);
  c.window = random.in(1, 8);
  c.rope_theta = random.coin() ? 0 : 100;
  c.fading_tokens = random.in(0, 10);
  c.fading_mode = random.coin() ? "chunk" : "sliding";
  c.fading_tied = random.coin();
  c.eidetic_tokens = random.in(0, 3) == 0 ? 1000 : random.in(1, 8);
  c.predictor_taps = random.in(1, 5);
  c.predictor_decay = random.coin() ? 1 : 0.6;
  c.innovation_bias = random.coin();
  c.fading_residual = random.coin();
  c.mlp_size = random.coin() ? 0 : random.in(1, 7);
  c.tied_embeddings = random.coin();
  model::validate(c);
  return c;
}

inline std::string describe(const model::Config& c) {
  return fmt::format("w {} m_f {} {} m_e {} k {} bias {} residual {} rope {}", c.window,
                     c.fading_tokens, c.fading_mode, c.eidetic_tokens, c.predictor_taps,
                     c.innovation_bias, c.fading_residual, c.rope_theta);
}

// Largest difference, relative to the largest value. Where fp32 has no number for any of them, as
// denormal ones count as 0, relative to its smallest: the result must be 0.
inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return INFINITY;
  if (a.numel() == 0) return 0;
  const auto x = a.detach().to(at::kDouble), y = b.detach().to(at::kDouble);
  const double smallest = std::numeric_limits<float>::min();
  return ((x - y).abs().max() / y.abs().max().clamp_min(smallest)).item<double>();
}

// Calls work with every instruction set that this CPU has, with one thread and with two.
template <typename Work>
void on_every_target(Work&& work) {
  struct Restored {
    int threads = at::get_num_threads();
    ~Restored() {
      kernels::use_target("");
      at::set_num_threads(threads);
    }
  } const restored;
  for (const auto& target : kernels::simd_targets())
    for (const int count : {1, 2}) {
      SCOPED_TRACE(fmt::format("{}, {} threads", target, count));
      kernels::use_target(target);
      at::set_num_threads(count);
      work();
    }
}

// Byte for byte, unlike Tensor::equal: -0 is not 0, and a NaN is itself.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  const auto x = a.contiguous(), y = b.contiguous();
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

// Every tensor of a state, by name, to compare two of them.
inline std::vector<std::pair<std::string, at::Tensor>> tensors_of(const nn::State& state) {
  std::vector<std::pair<std::string, at::Tensor>> out;
  for (size_t i = 0; i < state.layers.size(); ++i) {
    const auto add = [&](const char* name, const at::Tensor& x) {
      if (x.defined()) out.emplace_back(fmt::format("{}.{}", i, name), x);
    };
    nn::LayerState::visit(state.layers[i], add, add);
  }
  return out;
}

// The state of row b as if it were alone: without the places that only longer rows fill, which must
// be empty, and without the tails' rows of an earlier document, which nothing reads.
inline nn::State row_of(const nn::State& state, int64_t b) {
  const int64_t t = state.cursor.position[b];
  const auto row = [&](const at::Tensor& x) { return x.narrow(0, b, 1); };
  const auto cut = [&](std::string_view name, at::Tensor& x) {
    if (!x.defined()) return;
    x = row(x);
    if (name == "conv_tail" || name == "outputs" || name == "window")
      x = x.slice(1, std::max<int64_t>(0, x.size(1) - t));
    else if (name != "ssm" && name != "fading")  // the sets
      x = x.slice(1, 0, t);
  };
  nn::State out{.cursor = {{t}, {state.cursor.document[b]}}, .layers = {}};
  for (const auto& s : state.layers) {
    if (s.window.defined()) {
      const int64_t unfilled = std::max<int64_t>(0, s.window.size(1) - t);
      EXPECT_EQ(row(s.window).slice(1, 0, unfilled).count_nonzero().item<int64_t>(), 0);
    }
    if (s.eidetic.defined()) {
      EXPECT_EQ(row(s.eidetic).slice(1, t).count_nonzero().item<int64_t>(), 0);
      for (const auto* each : {&s.frozen, &s.running})
        EXPECT_TRUE((row(each->position).slice(1, t) == nn::kNowhere).all().item<bool>());
    }
    nn::LayerState::visit(out.layers.emplace_back(s), cut, cut);
  }
  return out;
}

inline void expect_same_state(const nn::State& actual, const nn::State& expected, double bound) {
  EXPECT_EQ(actual.cursor.position, expected.cursor.position);
  EXPECT_EQ(actual.cursor.document, expected.cursor.document);
  const auto a = tensors_of(actual), e = tensors_of(expected);
  ASSERT_EQ(a.size(), e.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].second.is_floating_point()) {
      EXPECT_LT(relative_error(a[i].second, e[i].second), bound) << a[i].first;
    } else {
      EXPECT_TRUE(at::equal(a[i].second, e[i].second)) << a[i].first;
    }
  }
}

}  // namespace bmojo::test
