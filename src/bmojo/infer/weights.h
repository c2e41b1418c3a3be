#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bmojo/infer/weight_source.h"
#include "bmojo/kernels/packed_product.h"
#include "bmojo/kernels/parallel.h"
#include "bmojo/model/checkpoint.h"

// Shapes: V vocabulary, D width, E inner width, N states, K taps, R dt rank, H query heads, G
// key/value heads, d head size, F MLP width.

namespace bmojo::infer {

// Numbers on borders of 64 bytes, or of a large page, freed as a whole.
class Aligned {
 public:
  explicit Aligned(int64_t bytes);
  void* data() const { return data_.get(); }
  float* floats() const { return static_cast<float*>(data_.get()); }

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> data_;
};

// The weights of a layer as the engine reads them: matrices packed, those with one input as one;
// vectors in fp32. Null or N = 0 where a layer has none.
struct PackedLayer {
  model::LayerKind kind = model::LayerKind::bmojo;
  const float* norm = nullptr;  // [D]
  PackedMatrix xzq;             // [2 E + H d, D]: x and z of the SSM, then the queries
  PackedMatrix kv;              // [2 G d, D]: a row of the product is a row of the memories
  PackedMatrix x, dt, out, o, fading_kv, gate_up, down;
  const float *in_bias = nullptr, *conv = nullptr, *conv_bias = nullptr, *dt_bias = nullptr,
              *A = nullptr /* [N, E] */, *skip = nullptr, *out_bias = nullptr,
              *fading_norm = nullptr, *mlp_norm = nullptr;
  std::optional<float> beta;
};

struct Weights {
  // Packs a checkpoint's tensors on all threads; those of a packed checkpoint are used where they
  // lie. No type: bf16 where every matrix of the file is, else fp32; both then hold the file's own
  // numbers. Error where a packed checkpoint is of another type or layout.
  Weights(const model::TensorFolder& tensors, model::Config config, std::optional<WeightType> type,
          const kernels::ParallelFor& parallel);

  model::Config config;
  WeightType type = WeightType::f32;
  std::vector<PackedLayer> layers;
  const float* norm = nullptr;  // [D]
  PackedMatrix head;            // [V, D]
  // Row `id` of the embedding, in fp32.
  void embed(int64_t id, float* out) const;

 private:
  // Rows are read where they lie, in the file that stays mapped. So are all arrays of a packed
  // checkpoint, which has one file.
  std::shared_ptr<base::MappedFile> embedding_file_;
  std::span<const std::byte> embedding_;
  model::Dtype embedding_type_ = model::Dtype::f32;
  std::vector<Aligned> memory_;
};

// Bytes that such Weights would allocate: none of a packed checkpoint, which stays in the file.
int64_t bytes_to_allocate(const model::TensorFolder& tensors, const model::Config& config,
                          std::optional<WeightType> type);

}  // namespace bmojo::infer
