#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <string_view>

#include "bmojo/model/safetensors.h"

namespace bmojo::model {

inline constexpr size_t kMaxHeaderBytes = 100'000'000;

struct SafetensorsHeader {
  std::deque<TensorInfo> tensors;  // sorted by name
  std::map<std::string, std::string> metadata;
};

// Reads the JSON of a safetensors header and checks every rule of the format against a data section
// of `data_bytes`. Errors start with `subject`.
SafetensorsHeader parse_safetensors_header(std::string_view text, size_t data_bytes,
                                           const std::string& subject);

}  // namespace bmojo::model
