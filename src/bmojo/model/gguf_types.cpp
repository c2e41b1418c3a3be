#include "bmojo/model/gguf_types.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "bmojo/base/error.h"
#include "bmojo/base/f16.h"

// d is a block's scale and m what is added; q is a stored small integer. Products and sums round as
// they are written: the compiler fuses none, as every ISO mode of it promises.

namespace bmojo::model {
namespace {

constexpr size_t kShort = 32;  // numbers of a block
constexpr size_t kLong = 256;  // of a "K" block, in groups with scales of their own

float half_at(const std::byte* p) {
  uint16_t half = 0;
  std::memcpy(&half, p, sizeof half);
  return base::float_of_f16(half);
}

uint32_t byte_at(const std::byte* p) { return std::to_integer<uint32_t>(*p); }
int signed_at(const std::byte* p) { return static_cast<int8_t>(byte_at(p)); }

// Number i of a short block of nibbles: the low ones first, then the high ones.
uint32_t nibble(const std::byte* nibbles, size_t i) {
  constexpr size_t kHalf = kShort / 2;
  return i < kHalf ? byte_at(nibbles + i) & 15 : byte_at(nibbles + i - kHalf) >> 4;
}

// The fifth bits of a short block, one for each number.
uint32_t fifth_bit(const std::byte* bits, size_t i) {
  return (byte_at(bits + i / 8) >> (i % 8) & 1) << 4;
}

// d, 32 signed bytes.
void decode_q8_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (size_t i = 0; i < kShort; ++i) out[i] = static_cast<float>(signed_at(block + 2 + i)) * d;
}

// d, nibbles.
void decode_q4_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (size_t i = 0; i < kShort; ++i)
    out[i] = d * static_cast<float>(static_cast<int>(nibble(block + 2, i)) - 8);
}

// d, m, nibbles.
void decode_q4_1(const std::byte* block, float* out) {
  const float d = half_at(block), m = half_at(block + 2);
  for (size_t i = 0; i < kShort; ++i) out[i] = d * static_cast<float>(nibble(block + 4, i)) + m;
}

// d, fifth bits, nibbles.
void decode_q5_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (size_t i = 0; i < kShort; ++i) {
    const uint32_t q = nibble(block + 6, i) | fifth_bit(block + 2, i);
    out[i] = d * static_cast<float>(static_cast<int>(q) - 16);
  }
}

// d, m, fifth bits, nibbles.
void decode_q5_1(const std::byte* block, float* out) {
  const float d = half_at(block), m = half_at(block + 2);
  for (size_t i = 0; i < kShort; ++i) {
    const uint32_t q = nibble(block + 8, i) | fifth_bit(block + 4, i);
    out[i] = d * static_cast<float>(q) + m;
  }
}

// The scale and the minimum of a group, 6 bits each in 12 bytes. Of groups 0 to 3 they stand in
// bytes 0 to 3 and 4 to 7; of groups 4 to 7 the low four bits share bytes 8 to 11, and the high two
// are those that the first eight bytes have left.
struct ScaleAndMin {
  float scale, min;
};
ScaleAndMin scale_and_min(const std::byte* packed, size_t group) {
  const auto at = [&](size_t i) { return byte_at(packed + i); };
  if (group < 4) return {float(at(group) & 63), float(at(group + 4) & 63)};
  const uint32_t low = at(group + 4);
  return {float((low & 15) | at(group - 4) >> 6 << 4), float(low >> 4 | at(group) >> 6 << 4)};
}

// d, the minima's scale, 8 scales and minima, then with `kHasFifth` 32 bytes whose bit g is the
// fifth of a number of group g, then nibbles: 32 bytes hold group 2 k and, in their high halves,
// group 2 k + 1.
template <bool kHasFifth>
void decode_groups(const std::byte* block, float* out) {
  const float d = half_at(block), d_min = half_at(block + 2);
  const std::byte* const fifths = block + 16;
  const std::byte* const nibbles = fifths + (kHasFifth ? 32 : 0);
  for (size_t g = 0; g < kLong / 32; ++g) {
    const auto [scale, min] = scale_and_min(block + 4, g);
    const float group_d = d * scale, group_m = d_min * min;
    for (size_t i = 0; i < 32; ++i) {
      uint32_t q = byte_at(nibbles + g / 2 * 32 + i) >> (g % 2 * 4) & 15;
      if (kHasFifth) q |= (byte_at(fifths + i) >> g & 1) << 4;
      out[g * 32 + i] = group_d * static_cast<float>(q) - group_m;
    }
  }
}

// 128 bytes of low nibbles, 64 of high pairs of bits, 16 signed scales, d. Of each half of 128
// numbers, 64 bytes hold the nibbles (the low ones first), and 32 the pairs (the lowest first).
void decode_q6_k(const std::byte* block, float* out) {
  const std::byte *const lows = block, *const highs = block + 128, *const scales = block + 192;
  const float d = half_at(block + 208);
  for (size_t i = 0; i < kLong; ++i) {
    const size_t half = i / 128, j = i % 128;
    const uint32_t low = byte_at(lows + half * 64 + j % 64) >> (j / 64 * 4) & 15;
    const uint32_t high = byte_at(highs + half * 32 + j % 32) >> (j / 32 * 2) & 3;
    const float group_d = d * static_cast<float>(signed_at(scales + i / 16));
    out[i] = group_d * static_cast<float>(static_cast<int>(low | high << 4) - 32);
  }
}

constexpr std::array<GgufType, 11> kTypes{{
    {0, "F32", 1, 4, Dtype::f32, nullptr},
    {1, "F16", 1, 2, Dtype::f16, nullptr},
    {30, "BF16", 1, 2, Dtype::bf16, nullptr},
    {8, "Q8_0", kShort, 34, {}, decode_q8_0},
    {2, "Q4_0", kShort, 18, {}, decode_q4_0},
    {3, "Q4_1", kShort, 20, {}, decode_q4_1},
    {6, "Q5_0", kShort, 22, {}, decode_q5_0},
    {7, "Q5_1", kShort, 24, {}, decode_q5_1},
    {12, "Q4_K", kLong, 144, {}, decode_groups<false>},
    {13, "Q5_K", kLong, 176, {}, decode_groups<true>},
    {14, "Q6_K", kLong, 210, {}, decode_q6_k},
}};

// By number; some were given up by the format.
constexpr std::array<std::string_view, 43> kNames = {
    "F32",   "F16",        "Q4_0",       "Q4_1",       "Q4_2",     "Q4_3",     "Q5_0",
    "Q5_1",  "Q8_0",       "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
    "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
    "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
    "F64",   "IQ1_M",      "BF16",       "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
    "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4",    "NVFP4",    "Q1_0",
    "Q2_0"};

}  // namespace

const GgufType* find_gguf_type(uint32_t number) {
  const auto found = std::ranges::find(kTypes, number, &GgufType::number);
  return found == kTypes.end() ? nullptr : &*found;
}

std::string name_of_gguf_type(uint32_t number) {
  return number < kNames.size() ? std::string(kNames[number]) : fmt::format("number {}", number);
}

std::string known_gguf_types() {
  std::string names;
  for (const auto& type : kTypes)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", type.name);
  return names;
}

void decode_gguf(const GgufType& type, std::span<const std::byte> bytes, std::span<float> out) {
  base::require(
      bytes.size() % type.bytes == 0 && bytes.size() / type.bytes * type.block == out.size(),
      "decode_gguf: {} numbers of {} must be whole blocks of {} bytes, got {} bytes", out.size(),
      type.name, type.bytes, bytes.size());
  if (type.plain) return to_float(bytes, *type.plain, out);
  for (size_t i = 0; i < bytes.size() / type.bytes; ++i)
    type.decode(bytes.data() + i * type.bytes, out.data() + i * type.block);
}

}  // namespace bmojo::model
