#pragma once

#include <bit>
#include <cstdint>

namespace bmojo::base {

// bf16 is the upper half of a float.
inline float float_of_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// The nearest, the even one of two; NaN stays NaN.
inline uint16_t bf16_of_float(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  // A NaN keeps the payload that fits; one that fits nothing would turn into infinity.
  const uint32_t high = bits >> 16;
  const uint32_t nan = (high & 0x7f) != 0 ? high : high | 0x40;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

}  // namespace bmojo::base
