#include "bmojo/infer/weight_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/printable.h"
#include "bmojo/infer/weights.h"
#include "bmojo/kernels/negative_exp.h"

namespace bmojo::infer {
namespace {

std::vector<Tensor> matrices_of(const model::LayerWeights<Tensor>& w) {
  return {w.in, w.x, w.dt, w.out, w.q, w.k, w.v, w.o, w.fading_k, w.fading_v, w.gate, w.up, w.down};
}

// Where they lie in the file, if they are of this type and on its border.
template <typename Number>
const Number* numbers_of(const Tensor& x, model::Dtype dtype) {
  const bool lies_right = reinterpret_cast<uintptr_t>(x.bytes.data()) % alignof(Number) == 0;
  return x.dtype == dtype && lies_right ? reinterpret_cast<const Number*>(x.bytes.data()) : nullptr;
}

// Others are made floats first, some rows at a time.
void pack_widened(const Tensor& x, kernels::PackedRows to, const kernels::ParallelFor& parallel) {
  const int64_t block = std::max<int64_t>(32, (int64_t{1} << 20) / to.K / 32 * 32);
  const auto size = model::size_of(x.dtype);
  std::vector<float> wide;
  for (int64_t row = 0; row < x.rows(); row += to.count, to.first += to.count) {
    to.count = std::min(block, x.rows() - row);
    wide.resize(static_cast<size_t>(to.count * to.K));
    const auto bytes = x.bytes.subspan(static_cast<size_t>(row * to.K) * size, wide.size() * size);
    model::to_float(bytes, x.dtype, wide);
    kernels::pack_rows(wide.data(), to, parallel);
  }
}

}  // namespace

ModelTensors::ModelTensors(const model::TensorFolder& folder, const model::Config& config)
    : layers(static_cast<size_t>(config.num_layers)) {
  const bool is_packed = folder.is_packed();
  std::map<std::string, model::Shape, std::less<>> shapes;
  for (const auto& spec : model::tensor_specs(config)) shapes[spec.name] = spec.shape;
  const auto tensor = [&](const std::string& name) -> Tensor {
    const auto it = shapes.find(name);
    if (it == shapes.end()) return {};
    if (is_packed) return {it->second, model::Dtype::f32, {}};
    const auto [file, info] = folder.at(name, it->second);
    return {it->second, info->dtype, file->bytes(*info)};
  };
  for (size_t i = 0; i < layers.size(); ++i)
    model::LayerWeights<Tensor>::visit(layers[i], [&](const char* leaf, Tensor& x) {
      x = tensor(fmt::format("layers.{}.{}", i, leaf));
    });
  norm = tensor("norm.weight");
  head = tensor(config.tied_embeddings ? "embedding.weight" : "head.weight");
}

WeightType ModelTensors::own_type() const {
  bool all_bf16 = head.dtype == model::Dtype::bf16;
  for (const auto& layer : layers)
    for (const auto& x : matrices_of(layer)) all_bf16 &= !x || x.dtype == model::Dtype::bf16;
  return all_bf16 ? WeightType::bf16 : WeightType::f32;
}

int64_t rows_of(const Parts& parts) {
  int64_t rows = 0;
  for (const auto& part : parts) rows += part ? part.rows() : 0;
  return rows;
}

int64_t width_of(const Parts& parts) {
  for (const auto& part : parts)
    if (part) return part.size() / part.rows();
  return 0;
}

PackedLayer layer_from(WeightSource& source, const model::Config& config,
                       const ModelTensors& tensors, int64_t i) {
  const auto& w = tensors.layers[static_cast<size_t>(i)];
  const auto name = [&](const char* leaf) { return fmt::format("layers.{}.{}", i, leaf); };
  PackedLayer layer;
  layer.kind = config.kind(i);
  layer.norm = source.floats(name("norm"), w.norm);
  layer.xzq = source.matrix(name("xzq"), {w.in, w.q});
  layer.kv = source.matrix(name("kv"), {w.k, w.v});
  layer.x = source.matrix(name("x"), {w.x});
  layer.dt = source.matrix(name("dt"), {w.dt});
  layer.out = source.matrix(name("out"), {w.out});
  layer.o = source.matrix(name("o"), {w.o});
  layer.fading_kv =
      w.fading_k ? source.matrix(name("fading_kv"), {w.fading_k, w.fading_v}) : layer.kv;
  layer.gate_up = source.matrix(name("gate_up"), {w.gate, w.up});
  layer.down = source.matrix(name("down"), {w.down});
  layer.in_bias = source.floats(name("in_bias"), w.in_bias);
  layer.conv = source.floats(name("conv"), w.conv);
  layer.conv_bias = source.floats(name("conv_bias"), w.conv_bias);
  layer.dt_bias = source.floats(name("dt_bias"), w.dt_bias);
  layer.A = source.decays(name("A"), w.a_log);
  layer.skip = source.floats(name("D"), w.d);
  layer.out_bias = source.floats(name("out_bias"), w.out_bias);
  layer.fading_norm = source.floats(name("fading_norm"), w.fading_norm);
  if (const float* beta = source.floats(name("beta"), w.beta)) layer.beta = *beta;
  layer.mlp_norm = source.floats(name("mlp_norm"), w.mlp_norm);
  return layer;
}

std::pair<const float*, PackedMatrix> norm_and_head_from(WeightSource& source,
                                                         const ModelTensors& tensors) {
  return {source.floats("norm", tensors.norm), source.matrix("head", {tensors.head})};
}

void pack(const Parts& parts, const PackedMatrix& to, void* panels,
          const kernels::ParallelFor& parallel) {
  kernels::PackedRows rows{.N = to.N, .K = to.K, .type = to.type, .panels = panels};
  for (const auto& x : parts) {
    if (!x) continue;
    rows.count = x.rows();
    if (const auto* f32 = numbers_of<float>(x, model::Dtype::f32))
      kernels::pack_rows(f32, rows, parallel);
    else if (const auto* bf16 = numbers_of<uint16_t>(x, model::Dtype::bf16))
      kernels::pack_rows(bf16, rows, parallel);
    else
      pack_widened(x, rows, parallel);
    rows.first += x.rows();
  }
}

std::vector<float> widened(const Tensor& x) {
  std::vector<float> out(static_cast<size_t>(x.size()));
  model::to_float(x.bytes, x.dtype, out);
  return out;
}

std::vector<float> decays_of(const Tensor& log) {
  auto values = widened(log);
  kernels::negative_exp(values.data(), log.size(), values.data());
  const int64_t E = log.shape[0], N = log.shape[1];
  std::vector<float> out(values.size());
  for (int64_t n = 0; n < N; ++n)
    for (int64_t e = 0; e < E; ++e)
      out[static_cast<size_t>(n * E + e)] = values[static_cast<size_t>(e * N + n)];
  return out;
}

PackedMatrix PlainSource::matrix(const std::string&, const Parts& parts) {
  PackedMatrix packed{rows_of(parts), width_of(parts), type_, nullptr};
  if (packed.N == 0) return packed;
  auto& memory = memory_.emplace_back(kernels::packed_bytes(packed.N, packed.K, packed.type));
  packed.panels = memory.data();
  pack(parts, packed, memory.data(), parallel_);
  return packed;
}

const float* PlainSource::floats(const std::string&, const Tensor& x) {
  if (!x) return nullptr;
  auto& memory = memory_.emplace_back(4 * x.size());
  model::to_float(x.bytes, x.dtype, {memory.floats(), static_cast<size_t>(x.size())});
  return memory.floats();
}

const float* PlainSource::decays(const std::string&, const Tensor& log) {
  if (!log) return nullptr;
  auto& memory = memory_.emplace_back(4 * log.size());
  std::ranges::copy(decays_of(log), memory.floats());
  return memory.floats();
}

const std::byte* MappedSource::find(const std::string& name, model::Dtype dtype,
                                    const model::Shape& shape, size_t border) {
  const auto subject = base::shown(folder_.folder());
  const auto it = folder_.entries().find(name);
  base::require(it != folder_.entries().end(), "{}: packed tensor '{}' is missing", subject, name);
  const auto& [file, info] = it->second;
  base::require(info->dtype == dtype && info->shape == shape,
                "{}: packed tensor '{}' must be {} {}, got {} {}", subject, name,
                model::name_of(dtype), model::to_string(shape), model::name_of(info->dtype),
                model::to_string(info->shape));
  const auto bytes = file->bytes(*info);
  base::require(reinterpret_cast<uintptr_t>(bytes.data()) % border == 0,
                "{}: packed tensor '{}' must lie on a border of {} bytes, got one that does not",
                subject, name, border);
  ++num_taken_;
  return bytes.data();
}

PackedMatrix MappedSource::matrix(const std::string& name, const Parts& parts) {
  PackedMatrix packed{rows_of(parts), width_of(parts), type_, nullptr};
  if (packed.N > 0)
    packed.panels = find(name, dtype_of(type_), panel_shape(packed.N, packed.K), 64);
  return packed;
}

const float* MappedSource::floats(const std::string& name, const Tensor& x) {
  if (!x) return nullptr;
  return reinterpret_cast<const float*>(find(name, model::Dtype::f32, x.shape, alignof(float)));
}

const float* MappedSource::decays(const std::string& name, const Tensor& log) {
  return log ? floats(name, Tensor{decays_shape(log), model::Dtype::f32, {}}) : nullptr;
}

void MappedSource::finish() const {
  base::require(num_taken_ == folder_.entries().size(),
                "{}: must hold the {} packed tensors of its config, got {}",
                base::shown(folder_.folder()), num_taken_, folder_.entries().size());
}

model::Shape decays_shape(const Tensor& log) { return {log.shape[1], log.shape[0]}; }

model::Shape panel_shape(int64_t N, int64_t K) {
  return {(N + kernels::kPanelRows - 1) / kernels::kPanelRows, K, kernels::kPanelRows};
}

model::Dtype dtype_of(WeightType type) {
  return type == WeightType::bf16 ? model::Dtype::bf16 : model::Dtype::f32;
}

}  // namespace bmojo::infer
