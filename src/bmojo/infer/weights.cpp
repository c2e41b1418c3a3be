#include "bmojo/infer/weights.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <span>
#include <string>

#include "bmojo/kernels/negative_exp.h"
#include "bmojo/model/layer_weights.h"
#include "bmojo/model/tensors.h"

namespace bmojo::infer {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kLargePage = 1 << 21;

// A tensor of the checkpoint; an empty shape where there is none.
struct Tensor {
  Shape shape;
  Dtype dtype = Dtype::f32;
  std::span<const std::byte> bytes;

  explicit operator bool() const { return !shape.empty(); }
  int64_t size() const { return num_elements(shape); }
  int64_t rows() const { return shape[0]; }
};

std::vector<Tensor> tensors_with_matrices(const LayerWeights<Tensor>& w) {
  return {w.in, w.x, w.dt, w.out, w.q, w.k, w.v, w.o, w.fading_k, w.fading_v, w.gate, w.up, w.down};
}

// x [rows, columns], in place.
void transpose(float* x, int64_t rows, int64_t columns) {
  const std::vector<float> from(x, x + rows * columns);
  for (int64_t i = 0; i < rows * columns; ++i)
    x[i] = from[static_cast<size_t>(i % rows * columns + i / rows)];
}

}  // namespace

Aligned::Aligned(int64_t bytes) {
  // Where the system has large pages, weights are read a little faster and found much faster.
  const int64_t alignment = bytes < kLargePage ? kAlignment : kLargePage;
  const auto size = (std::max<int64_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  data_.reset(std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(size)));
  if (!data_) throw std::bad_alloc();
  if (alignment == kLargePage) ::madvise(data_.get(), static_cast<size_t>(size), MADV_HUGEPAGE);
}

void Aligned::Free::operator()(void* memory) const { std::free(memory); }

// Turns tensors into what the engine reads, and owns the memory.
class Weights::Packer {
 public:
  Packer(const TensorFolder& tensors, Weights& out, const kernels::ParallelFor& parallel)
      : tensors_(tensors), out_(out), parallel_(parallel) {
    for (const auto& spec : tensor_specs(out.config)) shapes_[spec.name] = spec.shape;
  }

  Tensor tensor(const std::string& name) const {
    const auto it = shapes_.find(name);
    if (it == shapes_.end()) return {};
    const auto [file, info] = tensors_.at(name, it->second);
    return {it->second, info->dtype, file->bytes(*info)};
  }

  // All of a vector, in fp32; null where there is none.
  float* floats(const Tensor& x) {
    if (!x) return nullptr;
    auto& memory = out_.memory_.emplace_back(4 * x.size());
    to_float(x.bytes, x.dtype, {memory.floats(), static_cast<size_t>(x.size())});
    return memory.floats();
  }

  // Matrices with one input as one, their rows one behind the other.
  PackedMatrix matrix(std::initializer_list<Tensor> parts) {
    PackedMatrix packed{.N = 0, .K = 0, .type = out_.type, .panels = nullptr};
    for (const auto& part : parts)
      if (part) {
        packed.N += part.rows();
        packed.K = part.size() / part.rows();
      }
    if (packed.N == 0) return packed;
    auto& memory =
        out_.memory_.emplace_back(kernels::packed_bytes(packed.N, packed.K, packed.type));
    packed.panels = memory.data();
    int64_t first = 0;
    for (const auto& part : parts)
      if (part) {
        pack(part, first, packed, memory.data());
        first += part.rows();
      }
    return packed;
  }

 private:
  // A block of rows at a time, widened: no second copy of a matrix is ever whole.
  void pack(const Tensor& x, int64_t first, const PackedMatrix& packed, void* panels) {
    const int64_t K = packed.K, block = std::max<int64_t>(32, (int64_t{1} << 20) / K / 32 * 32);
    const auto size = size_of(x.dtype);
    std::vector<float> wide(static_cast<size_t>(std::min(block, x.rows()) * K));
    for (int64_t row = 0; row < x.rows(); row += block) {
      const int64_t count = std::min(block, x.rows() - row);
      const auto bytes = x.bytes.subspan(static_cast<size_t>(row * K) * size,
                                         static_cast<size_t>(count * K) * size);
      to_float(bytes, x.dtype, std::span(wide).first(static_cast<size_t>(count * K)));
      kernels::pack_rows(wide.data(),
                         {.N = packed.N,
                          .K = K,
                          .type = packed.type,
                          .first = first + row,
                          .count = count,
                          .panels = panels},
                         parallel_);
    }
  }

  const TensorFolder& tensors_;
  Weights& out_;
  const kernels::ParallelFor& parallel_;
  std::map<std::string, Shape> shapes_;
};

Weights::Weights(const TensorFolder& folder, Config config_, std::optional<WeightType> wanted,
                 const kernels::ParallelFor& parallel)
    : config(std::move(config_)) {
  Packer packer(folder, *this, parallel);
  std::vector<LayerWeights<Tensor>> tensors(static_cast<size_t>(config.num_layers));
  bool all_bf16 = true;
  for (size_t i = 0; i < tensors.size(); ++i) {
    LayerWeights<Tensor>::visit(tensors[i], [&](const char* leaf, Tensor& x) {
      x = packer.tensor(fmt::format("layers.{}.{}", i, leaf));
    });
    for (const auto& x : tensors_with_matrices(tensors[i]))
      all_bf16 &= !x || x.dtype == Dtype::bf16;
  }
  const auto head_tensor =
      packer.tensor(config.tied_embeddings ? "embedding.weight" : "head.weight");
  all_bf16 &= head_tensor.dtype == Dtype::bf16;
  type = wanted.value_or(all_bf16 ? WeightType::bf16 : WeightType::f32);

  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& w = tensors[i];
    auto& layer = layers.emplace_back();
    layer.kind = config.kind(static_cast<int64_t>(i));
    layer.norm = packer.floats(w.norm);
    layer.xzq = packer.matrix({w.in, w.q});
    layer.kv = packer.matrix({w.k, w.v});
    layer.x = packer.matrix({w.x});
    layer.dt = packer.matrix({w.dt});
    layer.out = packer.matrix({w.out});
    layer.o = packer.matrix({w.o});
    layer.fading_kv = w.fading_k ? packer.matrix({w.fading_k, w.fading_v}) : layer.kv;
    layer.gate_up = packer.matrix({w.gate, w.up});
    layer.down = packer.matrix({w.down});
    layer.in_bias = packer.floats(w.in_bias);
    layer.conv = packer.floats(w.conv);
    layer.conv_bias = packer.floats(w.conv_bias);
    layer.dt_bias = packer.floats(w.dt_bias);
    if (float* A = packer.floats(w.a_log)) {
      kernels::negative_exp(A, w.a_log.size(), A);
      transpose(A, config.ssm_inner_size, config.ssm_state_size);
      layer.A = A;
    }
    layer.skip = packer.floats(w.d);
    layer.out_bias = packer.floats(w.out_bias);
    layer.fading_norm = packer.floats(w.fading_norm);
    if (const float* beta = packer.floats(w.beta)) layer.beta = *beta;
    layer.mlp_norm = packer.floats(w.mlp_norm);
  }
  norm = packer.floats(packer.tensor("norm.weight"));
  head = packer.matrix({head_tensor});
  const auto [file, info] = folder.at("embedding.weight", {config.vocab_size, config.hidden_size});
  embedding_file_ = file->mapping();
  embedding_ = file->bytes(*info);
  embedding_type_ = info->dtype;
}

void Weights::embed(int64_t id, float* out) const {
  const auto D = static_cast<size_t>(config.hidden_size);
  const size_t row = D * size_of(embedding_type_);
  to_float(embedding_.subspan(static_cast<size_t>(id) * row, row), embedding_type_, {out, D});
}

}  // namespace bmojo::infer
