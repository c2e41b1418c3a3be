#pragma once

#include <string>
#include <string_view>

#include "bmojo/model/config.h"
#include "bmojo/model/gguf_header.h"

namespace bmojo::model {

enum class GgufFamily { llama, mamba };

struct GgufModel {
  GgufFamily family;
  Config config;
};

// The model that a file's metadata describes. What a Config cannot express is refused by name, as
// is a key of the architecture that bmojo does not know.
GgufModel model_of_gguf(const GgufHeader& header, const std::string& subject);

// "llama" or "mamba".
std::string_view name_of(GgufFamily family);

// The file's name of a native tensor.
std::string gguf_name(GgufFamily family, std::string_view native);

}  // namespace bmojo::model
