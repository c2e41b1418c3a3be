#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace bmojo::train {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Tensors of fp32 or int64 as one safetensors file, and back as copies of their own.
void write_tensors(const std::filesystem::path& path, const NamedTensors& tensors);
NamedTensors read_tensors(const std::filesystem::path& path);

}  // namespace bmojo::train
