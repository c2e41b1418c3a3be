#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace bmojo::test {

// The bytes of a GGUF file, written part by part.

template <typename Number>
std::string bytes_of(Number number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

inline std::string u32(uint32_t number) { return bytes_of(number); }
inline std::string u64(uint64_t number) { return bytes_of(number); }
inline std::string text(std::string_view value) { return u64(value.size()) + std::string(value); }

// Kinds of values, as the format numbers them.
enum Kind : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

inline std::string field(std::string_view key, uint32_t kind, std::string_view value) {
  return text(key) + u32(kind) + std::string(value);
}
inline std::string string_field(std::string_view key, std::string_view value) {
  return field(key, kString, text(value));
}
inline std::string array_field(std::string_view key, uint32_t item, uint64_t count,
                               std::string_view items) {
  return field(key, kArray, u32(item) + u64(count) + std::string(items));
}

// Sizes as the file has them: the length of a row first.
inline std::string tensor(std::string_view name, const std::vector<uint64_t>& sizes, uint32_t type,
                          uint64_t offset) {
  std::string out = text(name) + u32(static_cast<uint32_t>(sizes.size()));
  for (const uint64_t size : sizes) out += u64(size);
  return out + u32(type) + u64(offset);
}

struct GgufFile {
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::vector<std::string> fields = {}, tensors = {};
  size_t data_bytes = 0;
  size_t alignment = 32;

  std::string header() const {
    std::string out = magic + u32(version) + u64(tensors.size()) + u64(fields.size());
    for (const auto& field : fields) out += field;
    for (const auto& tensor : tensors) out += tensor;
    return out;
  }
  std::string bytes() const {
    std::string out = header();
    if (data_bytes > 0) out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + std::string(data_bytes, '\1');
  }
};

}  // namespace bmojo::test
