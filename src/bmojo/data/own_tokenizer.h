#pragma once

#include <filesystem>

#include "bmojo/base/json.h"
#include "bmojo/data/shards.h"

namespace bmojo::data {

// What a run knows of itself, beside the weights of each checkpoint.
inline constexpr const char* kProgressFile = "train.json";
base::Json load_progress(const std::filesystem::path& checkpoint);

// Error where a checkpoint was trained on text of another tokenizer than `data`'s. False where
// nothing is known of its tokenizer.
bool require_tokenizer_of(const std::filesystem::path& checkpoint, const TokenData& data);

}  // namespace bmojo::data
