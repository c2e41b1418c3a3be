#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numbers>
#include <string>
#include <vector>

#include "bmojo/base/random.h"
#include "bmojo/infer/model.h"
#include "bmojo/model/checkpoint.h"
#include "bmojo/model/safetensors.h"
#include "bmojo/model/tensors.h"
#include "tests/temp_folder.h"

namespace bmojo::test {

// Weights under which a mistake shows: attention far from uniform, norms and biases far from their
// initial constants, decays of every strength.
inline float strong_weight(const model::TensorSpec& spec, base::Random& random) {
  const double uniform = random.uniform();
  const double normal = std::sqrt(-2 * std::log(random.uniform())) *
                        std::cos(2 * std::numbers::pi * random.uniform());
  switch (spec.init) {
    case model::Init::ones:
      return static_cast<float>(0.5 + uniform);
    case model::Init::beta:
      return static_cast<float>(0.3 + uniform);
    case model::Init::zeros:
      return static_cast<float>(0.3 * normal);
    case model::Init::embedding:
    case model::Init::a_log:
      return static_cast<float>(normal);
    case model::Init::dt_bias:
      return static_cast<float>(normal - 1);
    default:
      return static_cast<float>(1.5 * normal / std::sqrt(static_cast<double>(spec.shape.back())));
  }
}

inline void write_strong_checkpoint(const model::Config& config, uint64_t seed,
                                    const std::filesystem::path& folder,
                                    model::Dtype dtype = model::Dtype::f32) {
  std::filesystem::create_directories(folder);
  model::save_config(config, folder);
  std::vector<model::TensorInfo> infos;
  for (const auto& spec : model::tensor_specs(config))
    infos.push_back({spec.name, dtype, spec.shape});
  model::SafetensorsWriter writer(folder / model::kWeightsFile, infos, {});
  uint64_t number = 0;
  for (const auto& spec : model::tensor_specs(config)) {
    base::Random random({seed, number++});
    std::vector<float> values(static_cast<size_t>(model::num_elements(spec.shape)));
    for (auto& value : values) value = strong_weight(spec, random);
    std::vector<std::byte> bytes(values.size() * model::size_of(dtype));
    model::from_float(values, dtype, bytes);
    writer.write(bytes);
  }
  writer.commit();
}

// A small model of any family, of odd sizes on purpose.
inline model::Config random_model(uint64_t seed) {
  base::Random random({seed, 77});
  const auto in = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random.below(static_cast<uint64_t>(high - low + 1)));
  };
  const auto coin = [&] { return random.below(2) == 1; };
  model::Config c;
  c.vocab_size = in(5, 40);
  c.hidden_size = in(3, 40);
  c.num_layers = in(1, 3);
  constexpr const char* kPatterns[] = {"bmojo", "bmojo",     "ssm,bmojo",
                                       "ssm",   "attention", "ssm,attention"};
  c.pattern = kPatterns[random.below(6)];
  c.ssm_inner_size = in(1, 70);
  c.ssm_state_size = in(1, 5);
  c.ssm_conv_taps = in(1, 5);
  c.ssm_conv_bias = coin();
  c.ssm_dt_rank = in(1, 3);
  c.ssm_bias = coin();
  c.num_kv_heads = in(1, 3);
  c.num_heads = c.num_kv_heads * in(1, 3);
  c.head_size = 2 * in(1, 9);
  c.window = in(0, 4) == 0 ? 1 : in(1, 12);
  c.rope_theta = coin() ? 0 : 100;
  c.fading_tokens = in(0, 15);
  c.fading_mode = coin() ? "chunk" : "sliding";
  c.fading_tied = coin();
  c.eidetic_tokens = in(0, 3) == 0 ? 1000 : in(0, 8);
  constexpr const char* kRules[] = {"innovation", "innovation", "innovation",
                                    "first",      "recent",     "random"};
  c.eidetic_rule = kRules[random.below(6)];
  c.predictor_taps = in(1, 5);
  c.predictor_decay = coin() ? 1 : 0.6;
  c.innovation_bias = coin();
  c.fading_residual = coin() || (c.fading_tokens == 0 && c.eidetic_tokens == 0);
  if (!c.has(model::LayerKind::bmojo) && coin()) c.window = 0;
  c.mlp_size = coin() ? 0 : in(1, 40);
  c.tied_embeddings = coin();
  // Keys that do not turn may have an odd size. Drawn apart: other seeds stay as they are.
  if (c.rope_theta == 0 && base::Random({seed, 81}).below(2) == 1) --c.head_size;
  model::validate(c);
  return c;
}

inline std::string describe(const model::Config& c) {
  std::string text = "bmojo config";
  const auto json = model::to_json(c);
  for (const auto& [name, value] : json.items())
    if (name != "model_type")
      text += fmt::format(" --set {}={}", name,
                          value.is_string() ? value.get<std::string>() : value.dump());
  return text;
}

inline std::vector<int64_t> random_ids(const model::Config& config, int64_t length, uint64_t seed) {
  base::Random random({seed, 78});
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < length; ++i)
    ids.push_back(static_cast<int64_t>(random.below(static_cast<uint64_t>(config.vocab_size))));
  return ids;
}

struct Read {
  std::vector<float> logits;  // [L, V]
  infer::State state;
};

// The text in parts of the given lengths, the last one as long as it takes.
inline Read read(const infer::Model& model, const std::vector<int64_t>& ids,
                 const std::vector<size_t>& parts = {}) {
  Read out{{}, model.begin()};
  const auto D = static_cast<size_t>(model.config().hidden_size);
  std::vector<float> hidden(ids.size() * D);
  size_t done = 0;
  for (size_t i = 0; done < ids.size(); ++i) {
    const size_t left = ids.size() - done;
    const size_t count = i < parts.size() ? std::min(left, parts[i]) : left;
    const infer::Input input{&out.state, std::span(ids).subspan(done, count)};
    model.forward({&input, 1}, hidden.data() + done * D);
    done += count;
  }
  out.logits.resize(ids.size() * static_cast<size_t>(model.config().vocab_size));
  model.logits(hidden.data(), std::ssize(ids), out.logits.data());
  return out;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// What differs, by name; empty where nothing does.
inline std::string difference(const infer::State& a, const infer::State& b) {
  if (a.position != b.position) return "position";
  for (size_t i = 0; i < a.layers.size(); ++i) {
    std::string found;
    std::vector<const std::vector<float>*> numbers;
    std::vector<const std::vector<int64_t>*> integers;
    infer::LayerState::visit(
        b.layers[i], [&](const char*, const auto& x) { numbers.push_back(&x); },
        [&](const char*, const auto& x) { integers.push_back(&x); });
    size_t n = 0, m = 0;
    infer::LayerState::visit(
        a.layers[i],
        [&](const char* name, const auto& x) {
          if (!same_bits(x, *numbers[n++])) found = name;
        },
        [&](const char* name, const auto& x) {
          if (!same_bits(x, *integers[m++])) found = name;
        });
    if (!found.empty()) return fmt::format("layer {} {}", i, found);
  }
  return "";
}
inline std::string difference(const Read& a, const Read& b) {
  return same_bits(a.logits, b.logits) ? difference(a.state, b.state) : "logits";
}

// The same with sums of more than a block of 512, and more memories than the engine reads at once.
inline model::Config random_wide_model(uint64_t seed) {
  auto c = random_model(seed);
  base::Random random({seed, 80});
  c.num_layers = std::min<int64_t>(c.num_layers, 2);
  (seed % 2 == 0 ? c.hidden_size : c.mlp_size) = 513 + static_cast<int64_t>(random.below(100));
  if (c.window > 0) c.window = 1 + static_cast<int64_t>(random.below(200));
  c.fading_tokens *= 10;
  c.eidetic_tokens *= 10;
  model::validate(c);
  return c;
}

// BMOJO_DRAW=SEED leaves one draw of infer/equal_bits, the one that failed.
inline bool is_asked_for(uint64_t seed) {
  const char* one = std::getenv("BMOJO_DRAW");
  return one == nullptr || std::to_string(seed) == one;
}

// A model with strong weights on disk, a text and how to cut it.
struct Draw {
  explicit Draw(uint64_t seed_) : Draw(seed_, random_model(seed_), 2, 70, 20) {}
  // Tokens from `shortest` on, `spread` numbers of them; parts of up to `longest`.
  Draw(uint64_t seed_, model::Config config_, uint64_t shortest, uint64_t spread, uint64_t longest)
      : seed(seed_), config(std::move(config_)) {
    const auto type = random.below(3) == 0 ? model::Dtype::bf16 : model::Dtype::f32;
    write_strong_checkpoint(config, seed, folder.path(), type);
    ids = random_ids(config, static_cast<int64_t>(shortest + random.below(spread)), seed);
    for (int i = 0; i < 4; ++i) parts.push_back(1 + random.below(longest));
  }
  infer::Model model(int threads) const {
    return infer::Model(model::TensorFolder(folder.path()), config, {}, threads);
  }
  // The command that tries this draw alone, and what it is.
  std::string text() const {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    return fmt::format("\n  BMOJO_DRAW={} {} --gtest_filter={}.{}\n  {} tokens, {}", seed,
                       program_invocation_name, test->test_suite_name(), test->name(), ids.size(),
                       describe(config));
  }

  uint64_t seed;
  model::Config config;
  base::Random random{{seed, 79}};
  TempFolder folder;
  std::vector<int64_t> ids;
  std::vector<size_t> parts;
};

}  // namespace bmojo::test
