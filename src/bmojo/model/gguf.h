#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "bmojo/model/dtype.h"
#include "bmojo/model/hugging_face.h"

namespace bmojo::model {

// By its first bytes; false for what is no regular file.
bool is_gguf(const std::filesystem::path& path);

struct GgufOptions {
  // f32, bf16 or f16. Without it F32, F16 and BF16 stay as they are, and blocks become f32.
  std::optional<Dtype> dtype = {};
  CopyProgress progress = {};
  // Throws Error for a tokenizer.json that bmojo does not read. It is then left out, with a note.
  std::function<void(const std::string& json)> check_tokenizer = {};
};

// A GGUF file of a Llama or a Mamba as a native checkpoint, with its tokenizer and its chat
// template. The file is only mapped; tensors are converted one after the other. Nothing is left
// behind where it fails.
Imported import_gguf(const std::filesystem::path& source, const std::filesystem::path& out,
                     const GgufOptions& options = {});

}  // namespace bmojo::model
