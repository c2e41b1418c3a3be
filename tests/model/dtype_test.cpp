#include "bmojo/model/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "bmojo/base/error.h"
#include "tests/temp_folder.h"

namespace bmojo::model {
namespace {

using test::contains;
using test::message_of;

constexpr float kInf = std::numeric_limits<float>::infinity();

uint16_t stored(float value, Dtype dtype) {
  uint16_t bits = 0;
  from_float({&value, 1}, dtype, std::as_writable_bytes(std::span(&bits, 1)));
  return bits;
}

float loaded(uint16_t bits, Dtype dtype) {
  float value = 0;
  to_float(std::as_bytes(std::span(&bits, 1)), dtype, {&value, 1});
  return value;
}

// The value a 16-bit pattern stands for, from its definition.
double value_of(uint16_t bits, int mantissa_bits, int bias) {
  const int exponent = (bits & 0x7fff) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (0x7fff >> mantissa_bits)) {
    return mantissa != 0 ? std::nan("") : sign * static_cast<double>(kInf);
  }
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  return sign * std::ldexp(whole, std::max(exponent, 1) - bias - mantissa_bits);
}

void check_every_pattern(Dtype dtype, int mantissa_bits, int bias) {
  std::vector<uint16_t> patterns(65536), back(65536);
  std::iota(patterns.begin(), patterns.end(), uint16_t{0});
  std::vector<float> values(65536);
  to_float(std::as_bytes(std::span(patterns)), dtype, values);
  from_float(values, dtype, std::as_writable_bytes(std::span(back)));
  EXPECT_EQ(back, patterns);  // NaN payloads and the sign of zero included
  for (const uint16_t bits : patterns) {
    const double expected = value_of(bits, mantissa_bits, bias);
    const double got = values[bits];
    ASSERT_TRUE(std::isnan(expected) ? std::isnan(got) : expected == got) << bits;
    ASSERT_EQ(std::signbit(values[bits]), bits >= 0x8000) << bits;
  }
}

// Between every pair of neighbours: the middle goes to the even one, and the nearest floats on
// either side of the middle to the nearer one.
void check_every_rounding(Dtype dtype, uint16_t infinity) {
  for (uint32_t bits = 0; bits + 1 < infinity; ++bits) {
    const auto low = static_cast<uint16_t>(bits), high = static_cast<uint16_t>(bits + 1);
    const float middle = loaded(low, dtype) / 2 + loaded(high, dtype) / 2;
    const uint16_t even = bits % 2 == 0 ? low : high;
    ASSERT_EQ(stored(middle, dtype), even) << bits;
    ASSERT_EQ(stored(-middle, dtype), even | 0x8000) << bits;
    ASSERT_EQ(stored(std::nextafter(middle, 0.0f), dtype), low) << bits;
    ASSERT_EQ(stored(std::nextafter(middle, kInf), dtype), high) << bits;
  }
}

TEST(Conversion, EveryBf16Pattern) { check_every_pattern(Dtype::bf16, 7, 127); }
TEST(Conversion, EveryF16Pattern) { check_every_pattern(Dtype::f16, 10, 15); }
TEST(Conversion, EveryBf16Rounding) { check_every_rounding(Dtype::bf16, 0x7f80); }
TEST(Conversion, EveryF16Rounding) { check_every_rounding(Dtype::f16, 0x7c00); }

TEST(Conversion, Edges) {
  EXPECT_EQ(stored(65504.0f, Dtype::f16), 0x7bff);
  EXPECT_EQ(stored(std::nextafter(65520.0f, 0.0f), Dtype::f16), 0x7bff);
  EXPECT_EQ(stored(65520.0f, Dtype::f16), 0x7c00);
  EXPECT_EQ(stored(-1e30f, Dtype::f16), 0xfc00);
  EXPECT_EQ(stored(0x1p-25f, Dtype::f16), 0);  // halfway to the smallest, zero is even
  EXPECT_EQ(stored(std::nextafter(0x1p-25f, 1.0f), Dtype::f16), 1);
  EXPECT_EQ(stored(std::nextafter(0x1p-14f, 0.0f), Dtype::f16), 0x0400);  // up to a normal number
  EXPECT_EQ(stored(std::numeric_limits<float>::denorm_min(), Dtype::f16), 0);
  EXPECT_EQ(stored(std::numeric_limits<float>::max(), Dtype::bf16), 0x7f80);
  EXPECT_EQ(stored(std::numeric_limits<float>::lowest(), Dtype::bf16), 0xff80);
  EXPECT_EQ(stored(kInf, Dtype::bf16), 0x7f80);
  EXPECT_EQ(stored(kInf, Dtype::f16), 0x7c00);
}

TEST(Conversion, NanWhosePayloadDoesNotFitStaysNan) {
  for (const uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fffffffu}) {
    const float nan = std::bit_cast<float>(bits);
    for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
      EXPECT_TRUE(std::isnan(loaded(stored(nan, dtype), dtype))) << bits;
    }
  }
}

TEST(Conversion, AnyLengthAndAlignment) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64}) {
    for (const size_t count : {0, 1, 63, 64, 65, 200}) {
      std::vector<float> values(count), back(count, -1.0f);
      std::iota(values.begin(), values.end(), -3.0f);
      std::vector<std::byte> bytes(count * size_of(dtype) + 2, std::byte{0xee});
      const auto inner = std::span(bytes).subspan(1, count * size_of(dtype));
      from_float(values, dtype, inner);
      to_float(inner, dtype, back);
      EXPECT_EQ(back, values) << name_of(dtype) << ' ' << count;
      EXPECT_EQ(bytes.front(), std::byte{0xee});
      EXPECT_EQ(bytes.back(), std::byte{0xee});
    }
  }
}

TEST(Conversion, DoubleRoundsToFloat) {
  const double value = 1.0 + 0x1p-24 + 0x1p-50;
  float out = 0;
  to_float(std::as_bytes(std::span(&value, 1)), Dtype::f64, {&out, 1});
  EXPECT_EQ(out, 1.0f + 0x1p-23f);
}

TEST(Conversion, RefusesOtherTypesAndSizes) {
  std::vector<float> values(3);
  std::vector<std::byte> bytes(6);
  EXPECT_EQ(message_of<base::Error>([&] { to_float(bytes, Dtype::i32, values); }),
            "to_float: dtype must be F32, BF16, F16 or F64, got I32");
  EXPECT_EQ(message_of<base::Error>([&] { from_float(values, Dtype::f32, bytes); }),
            "from_float: 3 elements of F32 must take 12 bytes, got 6");
  bytes.resize(7);
  EXPECT_TRUE(
      contains(message_of<base::Error>([&] { to_float(bytes, Dtype::bf16, values); }), "got 7"));
}

TEST(Dtype, NamesAndSizes) {
  for (const char* name : {"F32", "BF16", "F16", "F64", "I64", "I32", "I16", "I8", "U8", "BOOL"}) {
    EXPECT_EQ(name_of(dtype_of(name)), name);
  }
  EXPECT_EQ(dtype_of("bf16"), Dtype::bf16);
  EXPECT_EQ(size_of(Dtype::bf16), 2u);
  EXPECT_EQ(size_of(Dtype::f64), 8u);
  EXPECT_EQ(size_of(Dtype::boolean), 1u);
  EXPECT_EQ(
      message_of<base::Error>([] { dtype_of("F8\n"); }),
      "dtype: must be one of F32, BF16, F16, F64, I64, I32, I16, I8, U8, BOOL, got 'F8\\x0a'");
  EXPECT_TRUE(contains(message_of<base::Error>([] { dtype_of(""); }), "got ''"));
}

TEST(Shape, TextAndProduct) {
  EXPECT_EQ(to_string(Shape{2, 3}), "[2, 3]");
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ(num_elements({}), 1);
  EXPECT_EQ(num_elements({2, 0, 3}), 0);
  EXPECT_EQ(num_elements({int64_t{1} << 31, int64_t{1} << 31}), int64_t{1} << 62);
  EXPECT_TRUE(
      contains(message_of<base::Error>([] { num_elements({int64_t{1} << 32, int64_t{1} << 31}); }),
               "shape: must hold sizes >= 0 with a product below 2^63, got [4294967296, "));
  EXPECT_TRUE(contains(message_of<base::Error>([] { num_elements({2, -1}); }), "got [2, -1]"));
}

}  // namespace
}  // namespace bmojo::model
