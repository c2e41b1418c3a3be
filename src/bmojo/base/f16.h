#pragma once

#include <bit>
#include <cstdint>

namespace bmojo::base {

// Exact: a float has every value of an f16. NaN keeps its payload.
inline float float_of_f16(uint16_t half) {
  const uint32_t sign = uint32_t{half} >> 15 << 31, exponent = (half >> 10) & 0x1f;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t wide = exponent == 0x1f ? 0xff : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

}  // namespace bmojo::base
