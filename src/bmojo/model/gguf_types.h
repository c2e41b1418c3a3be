#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "bmojo/model/dtype.h"

namespace bmojo::model {

// How a GGUF file stores the numbers of a tensor: in blocks, each of some bytes, that lie side by
// side along a row. F32, F16 and BF16 have blocks of one number.
struct GgufType {
  uint32_t number;  // in the file
  std::string_view name;
  size_t block;                // numbers
  size_t bytes;                // of a block
  std::optional<Dtype> plain;  // of blocks of one number
  void (*decode)(const std::byte* block, float* out);
};

// Null for a type that is not read.
const GgufType* find_gguf_type(uint32_t number);
// For messages, of any type: "IQ4_XS", or "number 99" where there is no such type.
std::string name_of_gguf_type(uint32_t number);
std::string known_gguf_types();  // "F32, F16, …": those that are read

// `bytes` are whole blocks and `out` their numbers. Values are those of the Python package gguf, to
// the bit; a NaN stays a NaN.
void decode_gguf(const GgufType& type, std::span<const std::byte> bytes, std::span<float> out);

}  // namespace bmojo::model
