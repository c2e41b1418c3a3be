#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bmojo/model/dtype.h"
#include "bmojo/model/gguf_types.h"

namespace bmojo::model {

inline constexpr std::string_view kGgufMagic = "GGUF";

enum class GgufKind : uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64
};

// A value of the metadata, where it stands in the file. Views, here and below, are into the file.
struct GgufValue {
  GgufKind kind;
  GgufKind item;                     // of an array
  uint64_t count = 1;                // items of an array
  std::span<const std::byte> bytes;  // of a string without its length; of all items of an array
};

struct GgufField {
  std::string_view key;
  GgufValue value;
};

struct GgufTensor {
  std::string_view name;
  const GgufType* type;
  Shape shape;                // rows first, as ours are: the reverse of the file's
  size_t begin = 0, end = 0;  // bytes, in the file
};

struct GgufHeader {
  std::deque<GgufField> fields;    // sorted by key
  std::deque<GgufTensor> tensors;  // sorted by name

  const GgufValue* find(std::string_view key) const;
  const GgufTensor* find_tensor(std::string_view name) const;
};

// Reads the beginning of a GGUF file of version 2 or 3 and checks every rule of the format against
// all of it. Errors start with `subject`. Heap use stays within a few times the header.
GgufHeader parse_gguf_header(std::span<const std::byte> file, const std::string& subject);

// The items of an array of strings, which parse_gguf_header() has checked.
std::vector<std::string_view> strings_of(const GgufValue& array);

// For messages: "a string", "an array of i32", …
std::string name_of(const GgufValue& value);

}  // namespace bmojo::model
