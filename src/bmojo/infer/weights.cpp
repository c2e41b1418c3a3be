#include "bmojo/infer/weights.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <tuple>
#include <utility>

#include "bmojo/infer/packed_folder.h"

namespace bmojo::infer {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kLargePage = 1 << 21;

// Where the system has large pages, weights in them are read faster and found much faster.
int64_t alignment_of(int64_t bytes) { return bytes < kLargePage ? kAlignment : kLargePage; }

int64_t aligned(int64_t bytes) {
  const int64_t alignment = alignment_of(bytes);
  return (std::max<int64_t>(bytes, 1) + alignment - 1) / alignment * alignment;
}

// Adds up what PlainSource would allocate.
class Counting : public WeightSource {
 public:
  explicit Counting(WeightType type) : type_(type) {}
  PackedMatrix matrix(const std::string&, const Parts& parts) override {
    if (const auto N = rows_of(parts); N > 0)
      bytes += aligned(kernels::packed_bytes(N, width_of(parts), type_));
    return {};
  }
  const float* floats(const std::string&, const Tensor& x) override {
    if (x) bytes += aligned(4 * x.size());
    return nullptr;
  }
  const float* decays(const std::string& name, const Tensor& log) override {
    return floats(name, log);
  }
  int64_t bytes = 0;

 private:
  WeightType type_;
};

}  // namespace

Aligned::Aligned(int64_t bytes) {
  const auto size = static_cast<size_t>(aligned(bytes));
  data_.reset(std::aligned_alloc(static_cast<size_t>(alignment_of(bytes)), size));
  if (!data_) throw std::bad_alloc();
  if (bytes >= kLargePage) ::madvise(data_.get(), size, MADV_HUGEPAGE);
}

void Aligned::Free::operator()(void* memory) const { std::free(memory); }

Weights::Weights(const model::TensorFolder& folder, model::Config config_,
                 std::optional<WeightType> wanted, const kernels::ParallelFor& parallel)
    : config(std::move(config_)) {
  const ModelTensors tensors(folder, config);
  const auto fill = [&](WeightSource& source) {
    for (int64_t i = 0; i < config.num_layers; ++i)
      layers.push_back(layer_from(source, config, tensors, i));
    std::tie(norm, head) = norm_and_head_from(source, tensors);
  };
  if (folder.is_packed()) {
    type = packed_type(folder, wanted);
    folder.files().front()->mapping()->prefer_large_pages();
    MappedSource source(folder, type);
    fill(source);
    source.finish();
  } else {
    type = wanted.value_or(tensors.own_type());
    PlainSource source(type, memory_, parallel);
    fill(source);
  }
  const auto [file, info] = folder.at("embedding.weight", {config.vocab_size, config.hidden_size});
  embedding_file_ = file->mapping();
  embedding_ = file->bytes(*info);
  embedding_type_ = info->dtype;
}

int64_t bytes_to_allocate(const model::TensorFolder& folder, const model::Config& config,
                          std::optional<WeightType> type) {
  if (folder.is_packed()) return 0;
  const ModelTensors tensors(folder, config);
  Counting source(type.value_or(tensors.own_type()));
  for (int64_t i = 0; i < config.num_layers; ++i) layer_from(source, config, tensors, i);
  norm_and_head_from(source, tensors);
  return source.bytes;
}

void Weights::embed(int64_t id, float* out) const {
  const auto D = static_cast<size_t>(config.hidden_size);
  const size_t row = D * model::size_of(embedding_type_);
  model::to_float(embedding_.subspan(static_cast<size_t>(id) * row, row), embedding_type_,
                  {out, D});
}

}  // namespace bmojo::infer
