#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "bmojo/model/config.h"
#include "bmojo/model/dtype.h"

namespace bmojo::model {

// Called with the bytes read so far, and those there are in all.
using CopyProgress = std::function<void(int64_t done, int64_t total)>;

struct Imported {
  std::string model_type;  // "mamba", "mistral" or "llama"
  Config config;
  std::string note = {};  // what was left out, for the user; empty where nothing was
};

// A folder of transformers' Mamba, Mistral or Llama as a native checkpoint: the same bytes under
// native names, or the numbers as `dtype` (f32, bf16 or f16). Tokenizer files come along. Nothing
// is left behind where it fails.
Imported import_hugging_face(const std::filesystem::path& source, const std::filesystem::path& out,
                             std::optional<Dtype> dtype = {}, const CopyProgress& progress = {});

// A native checkpoint as `dtype` (f32, bf16 or f16): under transformers' names where the config is
// exactly one of its models, under native names elsewhere. Returns the model_type written.
std::string export_checkpoint(const std::filesystem::path& folder, const std::filesystem::path& out,
                              Dtype dtype, const CopyProgress& progress = {});

}  // namespace bmojo::model
