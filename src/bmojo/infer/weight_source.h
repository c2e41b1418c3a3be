#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bmojo/kernels/packed_product.h"
#include "bmojo/kernels/parallel.h"
#include "bmojo/model/checkpoint.h"
#include "bmojo/model/layer_weights.h"
#include "bmojo/model/tensors.h"

// What the engine reads, array by array, and where it comes from: a plain checkpoint's tensors are
// laid out, those of a packed one are used where they lie (docs/checkpoint.md, Packed checkpoints).

namespace bmojo::infer {

using kernels::PackedMatrix;
using kernels::WeightType;

struct PackedLayer;
class Aligned;

// A tensor of a plain checkpoint; an empty shape where there is none. Of a packed one its shape
// alone.
struct Tensor {
  model::Shape shape;
  model::Dtype dtype = model::Dtype::f32;
  std::span<const std::byte> bytes;

  explicit operator bool() const { return !shape.empty(); }
  int64_t size() const { return model::num_elements(shape); }
  int64_t rows() const { return shape[0]; }
};

struct ModelTensors {
  // With the bytes of a plain checkpoint; without any, of a packed one.
  ModelTensors(const model::TensorFolder& folder, const model::Config& config);

  std::vector<model::LayerWeights<Tensor>> layers;
  Tensor norm, head;

  // bf16 where every matrix is, else fp32: the numbers of the file.
  WeightType own_type() const;
};

// Matrices with one input are one, their rows one behind the other.
using Parts = std::vector<Tensor>;
int64_t rows_of(const Parts& parts);
int64_t width_of(const Parts& parts);

// Under their names in a packed checkpoint. No array where there is no tensor.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual PackedMatrix matrix(const std::string& name, const Parts& parts) = 0;
  virtual const float* floats(const std::string& name, const Tensor& x) = 0;
  virtual const float* decays(const std::string& name, const Tensor& log) = 0;  // decays_of
};

// Asks for every array of layer i, and of the rest.
PackedLayer layer_from(WeightSource& source, const model::Config& config,
                       const ModelTensors& tensors, int64_t i);
std::pair<const float*, PackedMatrix> norm_and_head_from(WeightSource& source,
                                                         const ModelTensors& tensors);

// Lays out a block of rows at a time: no second copy of a matrix is ever whole.
void pack(const Parts& parts, const PackedMatrix& to, void* panels,
          const kernels::ParallelFor& parallel);
std::vector<float> widened(const Tensor& x);
// A = -exp(log) of log [E, N], as [N, E]: one token is then read and written vector by vector.
std::vector<float> decays_of(const Tensor& log);
model::Shape decays_shape(const Tensor& log);

// Lays plain tensors out in memory.
class PlainSource : public WeightSource {
 public:
  PlainSource(WeightType type, std::vector<Aligned>& memory, const kernels::ParallelFor& parallel)
      : type_(type), memory_(memory), parallel_(parallel) {}
  PackedMatrix matrix(const std::string& name, const Parts& parts) override;
  const float* floats(const std::string& name, const Tensor& x) override;
  const float* decays(const std::string& name, const Tensor& log) override;

 private:
  WeightType type_;
  std::vector<Aligned>& memory_;
  const kernels::ParallelFor& parallel_;
};

// Finds arrays in a packed checkpoint. Error naming the one that is missing or not as it must be.
class MappedSource : public WeightSource {
 public:
  MappedSource(const model::TensorFolder& folder, WeightType type) : folder_(folder), type_(type) {}
  PackedMatrix matrix(const std::string& name, const Parts& parts) override;
  const float* floats(const std::string& name, const Tensor& x) override;
  const float* decays(const std::string& name, const Tensor& log) override;
  // Error where the folder holds arrays that nobody asked for.
  void finish() const;

 private:
  const std::byte* find(const std::string& name, model::Dtype dtype, const model::Shape& shape,
                        size_t border);

  const model::TensorFolder& folder_;
  WeightType type_;
  size_t num_taken_ = 1;  // the embedding, whose rows are read as they are
};

// Of a matrix in a packed checkpoint: [panels, K, rows of a panel].
model::Shape panel_shape(int64_t N, int64_t K);
model::Dtype dtype_of(WeightType type);

}  // namespace bmojo::infer
