#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "bmojo/infer/weight_source.h"
#include "bmojo/model/checkpoint.h"

// A checkpoint whose arrays lie in the file as the engine reads them (docs/checkpoint.md, Packed
// checkpoints): opening it lays out nothing and copies nothing.

namespace bmojo::infer {

// Writes one beside a plain checkpoint, one matrix in memory at a time. No type: as Weights.
// Returns the type.
WeightType write_packed_folder(const std::filesystem::path& folder,
                               const std::filesystem::path& out, std::optional<WeightType> type,
                               const kernels::ParallelFor& parallel,
                               const std::function<void(int64_t done, int64_t total)>& progress);

// The type of a packed checkpoint. Error where its layout is not this program's, or its type not
// the wanted one.
WeightType packed_type(const model::TensorFolder& folder, std::optional<WeightType> wanted);

}  // namespace bmojo::infer
