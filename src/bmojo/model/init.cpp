#include "bmojo/model/init.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "bmojo/base/file.h"
#include "bmojo/base/random.h"
#include "bmojo/model/checkpoint.h"
#include "bmojo/model/safetensors.h"

namespace bmojo::model {
namespace {

uint64_t stream_of(uint64_t seed, std::string_view name) {
  uint64_t hash = base::mix_bits(seed + base::kGoldenGamma);
  for (const char c : name) hash = base::mix_bits(hash ^ static_cast<unsigned char>(c));
  return hash;
}

// Uniform on (0, 1), never either end.
double uniform(uint64_t stream, uint64_t index) {
  const uint64_t bits = base::mix_bits(stream + (index + 1) * base::kGoldenGamma);
  return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
}

double normal(uint64_t stream, uint64_t index) {
  const double radius = std::sqrt(-2 * std::log(uniform(stream, 2 * index)));
  return radius * std::cos(2 * std::numbers::pi * uniform(stream, 2 * index + 1));
}

// How many terms the residual stream sums: each mixer, a B'MOJO layer's second term, each MLP.
int64_t num_residual_additions(const Config& c) {
  int64_t count = 0;
  for (int64_t i = 0; i < c.num_layers; ++i)
    count += 1 + (c.kind(i) == LayerKind::bmojo && c.fading_residual) + (c.mlp_size > 0);
  return count;
}

}  // namespace

void fill_fresh(const Config& config, const TensorSpec& spec, uint64_t seed, int64_t begin,
                std::span<float> out) {
  const uint64_t stream = stream_of(seed, spec.name);
  const auto fill = [&](auto&& value_of) {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>(value_of(static_cast<uint64_t>(begin) + i));
  };
  // A convolution's taps [E, 1, K] have K inputs each, a matrix [out, in] has `in`.
  const double fan_in = static_cast<double>(spec.shape.back());
  const auto symmetric = [&](double bound) {
    fill([&](uint64_t i) { return bound * (2 * uniform(stream, i) - 1); });
  };
  switch (spec.init) {
    case Init::ones:
    case Init::beta:
      return fill([](uint64_t) { return 1.0; });
    case Init::zeros:
      return fill([](uint64_t) { return 0.0; });
    case Init::embedding:
      return fill([&](uint64_t i) { return 0.02 * normal(stream, i); });
    case Init::linear:
    case Init::dt_proj:
      return symmetric(1 / std::sqrt(fan_in));
    case Init::residual:
      return symmetric(1 / std::sqrt(fan_in * static_cast<double>(num_residual_additions(config))));
    case Init::dt_bias:
      return fill([&](uint64_t i) {
        const double dt = std::exp(std::lerp(std::log(0.001), std::log(0.1), uniform(stream, i)));
        return dt + std::log(-std::expm1(-dt));
      });
    case Init::a_log:
      return fill([&](uint64_t i) {
        return std::log(static_cast<double>(i % static_cast<uint64_t>(spec.shape.back()) + 1));
      });
  }
}

void write_fresh_checkpoint(const Config& config, uint64_t seed,
                            const std::filesystem::path& folder,
                            const std::function<void(int64_t)>& progress) {
  const auto specs = tensor_specs(config);
  base::write_folder(folder, [&](const std::filesystem::path& inside) {
    std::vector<TensorInfo> infos;
    for (const auto& spec : specs) infos.push_back({spec.name, Dtype::f32, spec.shape});
    SafetensorsWriter writer(inside / kWeightsFile, infos, {{"format", "pt"}});
    std::vector<float> block(size_t{1} << 20);
    int64_t written = 0;
    for (const auto& spec : specs) {
      const int64_t size = num_elements(spec.shape);
      for (int64_t begin = 0; begin < size; begin += static_cast<int64_t>(block.size())) {
        const auto length = std::min<int64_t>(static_cast<int64_t>(block.size()), size - begin);
        const std::span part(block.data(), static_cast<size_t>(length));
        fill_fresh(config, spec, seed, begin, part);
        writer.write(std::as_bytes(part));
        written += length;
        if (progress) progress(written);
      }
    }
    writer.commit();
    save_config(config, inside);
  });
}

}  // namespace bmojo::model
