#include "bmojo/train/tensor_file.h"

#include <torch/torch.h>

#include "bmojo/base/error.h"
#include "bmojo/model/safetensors.h"

namespace bmojo::train {
namespace {

model::Dtype dtype_of_tensor(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  base::require(type == at::kFloat || type == at::kLong,
                "checkpoint: tensors must be fp32 or int64");
  return type == at::kFloat ? model::Dtype::f32 : model::Dtype::i64;
}

}  // namespace

void write_tensors(const std::filesystem::path& path, const NamedTensors& tensors) {
  std::vector<model::TensorInfo> infos;
  for (const auto& [name, tensor] : tensors)
    infos.push_back(
        {.name = name, .dtype = dtype_of_tensor(tensor), .shape = tensor.sizes().vec()});
  model::SafetensorsWriter writer(path, std::move(infos), {});
  for (const auto& [name, tensor] : tensors) {
    const auto values = tensor.detach().contiguous();
    writer.write({static_cast<const std::byte*>(values.data_ptr()), values.nbytes()});
  }
  writer.commit();
}

NamedTensors read_tensors(const std::filesystem::path& path) {
  const model::SafetensorsFile file(path);
  NamedTensors tensors;
  for (const auto& info : file.tensors()) {
    base::require(info.dtype == model::Dtype::f32 || info.dtype == model::Dtype::i64,
                  "{}: tensor '{}' must be F32 or I64, got {}", path.string(), info.name,
                  model::name_of(info.dtype));
    const auto type = info.dtype == model::Dtype::f32 ? at::kFloat : at::kLong;
    tensors.emplace_back(info.name,
                         torch::from_blob(file.bytes(info).data(), info.shape, type).clone());
  }
  return tensors;
}

}  // namespace bmojo::train
