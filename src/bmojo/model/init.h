#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "bmojo/model/tensors.h"

namespace bmojo::model {

// Elements [begin, begin + out.size()) of a fresh tensor. Each element depends on (seed, name, its
// index) alone, so any split of the work gives the same weights.
void fill_fresh(const Config& config, const TensorSpec& spec, uint64_t seed, int64_t begin,
                std::span<float> out);

// Writes a checkpoint folder with fresh fp32 weights, a block at a time. `progress` is called with
// the parameters written so far.
void write_fresh_checkpoint(const Config& config, uint64_t seed,
                            const std::filesystem::path& folder,
                            const std::function<void(int64_t)>& progress = {});

}  // namespace bmojo::model
