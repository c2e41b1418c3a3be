#include "bmojo/model/gguf_types.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <random>

#include "bmojo/base/error.h"
#include "tests/model/gguf_file.h"
#include "tests/temp_folder.h"

// Blocks are packed here from integers and scales, and what must come out is computed from those:
// the reader unpacks, so no line of it is repeated. Each operation is done in double and rounded to
// float, which rounds products and sums of two floats once.

namespace bmojo::model {
namespace {

using test::bytes_of;

using Random = std::mt19937;

float product(float a, float b) { return static_cast<float>(double{a} * double{b}); }
float sum(float a, float b) { return static_cast<float>(double{a} + double{b}); }

// By the definition of f16: sign, 5 bits of exponent, 10 of mantissa.
float value_of_half(uint16_t half) {
  const int exponent = half >> 10 & 31, mantissa = half & 1023;
  const double sign = half >> 15 != 0 ? -1 : 1;
  if (exponent == 31) return static_cast<float>(mantissa != 0 ? NAN : sign * INFINITY);
  const double value =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return static_cast<float>(sign * value);
}

// Half of them are any bits at all; the others are those that go wrong first.
uint16_t draw_half(Random& random) {
  constexpr std::array<uint16_t, 12> kOdd = {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x83ff,
                                             0x0400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e01};
  return random() % 2 == 0 ? static_cast<uint16_t>(random()) : kOdd[random() % kOdd.size()];
}

struct Block {
  std::string bytes;
  std::vector<float> values;
};

std::string pack_nibbles(const std::vector<uint32_t>& q) {
  std::string bytes;
  for (size_t i = 0; i < 16; ++i) bytes += static_cast<char>((q[i] & 15) | (q[i + 16] & 15) << 4);
  return bytes;
}

std::string pack_fifths(const std::vector<uint32_t>& q) {
  uint32_t bits = 0;
  for (size_t i = 0; i < 32; ++i) bits |= (q[i] >> 4 & 1) << i;
  return bytes_of(bits);
}

std::vector<uint32_t> draw(Random& random, size_t count, uint32_t limit) {
  std::vector<uint32_t> q(count);
  for (auto& value : q) value = random() % limit;
  return q;
}

// 4 or 5 bits; without a minimum, half of the range is taken off.
Block draw_short(Random& random, int bits, bool has_min) {
  const auto q = draw(random, 32, 1u << bits);
  const uint16_t d = draw_half(random), m = draw_half(random);
  Block block{bytes_of(d), {}};
  if (has_min) block.bytes += bytes_of(m);
  if (bits == 5) block.bytes += pack_fifths(q);
  block.bytes += pack_nibbles(q);
  for (const auto value : q) {
    const auto number =
        static_cast<float>(static_cast<int>(value) - (has_min ? 0 : 1 << (bits - 1)));
    const float scaled = product(value_of_half(d), number);
    block.values.push_back(has_min ? sum(scaled, value_of_half(m)) : scaled);
  }
  return block;
}

Block draw_q8_0(Random& random) {
  const uint16_t d = draw_half(random);
  Block block{bytes_of(d), {}};
  for (int i = 0; i < 32; ++i) {
    const auto q = static_cast<int8_t>(random());
    block.bytes += static_cast<char>(q);
    block.values.push_back(product(q, value_of_half(d)));
  }
  return block;
}

// Scales and minima of 6 bits: those of the first four groups whole in eight bytes, whose upper two
// bits are the upper two of the last four; the lower four of these share four more bytes.
std::string pack_scales(const std::vector<uint32_t>& scales, const std::vector<uint32_t>& mins) {
  std::array<uint32_t, 12> bytes{};
  for (size_t g = 0; g < 4; ++g) {
    bytes[g] = scales[g] | scales[g + 4] >> 4 << 6;
    bytes[g + 4] = mins[g] | mins[g + 4] >> 4 << 6;
    bytes[g + 8] = (scales[g + 4] & 15) | (mins[g + 4] & 15) << 4;
  }
  return {bytes.begin(), bytes.end()};
}

Block draw_groups(Random& random, int bits) {
  const auto q = draw(random, 256, 1u << bits), scales = draw(random, 8, 64),
             mins = draw(random, 8, 64);
  const uint16_t d = draw_half(random), d_min = draw_half(random);
  std::string nibbles(128, '\0'), fifths(32, '\0');
  Block block{bytes_of(d) + bytes_of(d_min) + pack_scales(scales, mins), {}};
  for (size_t i = 0; i < 256; ++i) {
    const size_t group = i / 32, place = i % 32;
    auto& nibble = nibbles[group / 2 * 32 + place];
    nibble = static_cast<char>(nibble | (q[i] & 15) << (group % 2 * 4));
    fifths[place] = static_cast<char>(fifths[place] | (q[i] >> 4) << group);
    const float scale = product(value_of_half(d), static_cast<float>(scales[group]));
    const float min = product(value_of_half(d_min), static_cast<float>(mins[group]));
    block.values.push_back(sum(product(scale, static_cast<float>(q[i])), -min));
  }
  block.bytes += (bits == 5 ? fifths : "") + nibbles;
  return block;
}

Block draw_q6_k(Random& random) {
  const auto q = draw(random, 256, 64);
  const uint16_t d = draw_half(random);
  std::string lows(128, '\0'), highs(64, '\0'), scales;
  for (int i = 0; i < 16; ++i) scales += static_cast<char>(random());
  Block block;
  for (size_t i = 0; i < 256; ++i) {
    const size_t half = i / 128, quarter = i % 128 / 32, place = i % 32;
    auto& low = lows[half * 64 + quarter % 2 * 32 + place];
    low = static_cast<char>(low | (q[i] & 15) << (quarter / 2 * 4));
    auto& high = highs[half * 32 + place];
    high = static_cast<char>(high | (q[i] >> 4) << (quarter * 2));
    const float scale = product(value_of_half(d), static_cast<int8_t>(scales[i / 16]));
    block.values.push_back(product(scale, static_cast<float>(static_cast<int>(q[i]) - 32)));
  }
  block.bytes = lows + highs + scales + bytes_of(d);
  return block;
}

Block draw_plain(Random& random, int bytes, bool half) {
  const auto bits = static_cast<uint32_t>(random());
  if (bytes == 4) return {bytes_of(bits), {std::bit_cast<float>(bits)}};
  const auto low = half ? draw_half(random) : static_cast<uint16_t>(bits);
  const float value = half ? value_of_half(low) : std::bit_cast<float>(uint32_t{low} << 16);
  return {bytes_of(low), {value}};
}

const std::vector<std::pair<std::string, std::function<Block(Random&)>>> kDraws = {
    {"F32", [](Random& random) { return draw_plain(random, 4, false); }},
    {"F16", [](Random& random) { return draw_plain(random, 2, true); }},
    {"BF16", [](Random& random) { return draw_plain(random, 2, false); }},
    {"Q8_0", draw_q8_0},
    {"Q4_0", [](Random& random) { return draw_short(random, 4, false); }},
    {"Q4_1", [](Random& random) { return draw_short(random, 4, true); }},
    {"Q5_0", [](Random& random) { return draw_short(random, 5, false); }},
    {"Q5_1", [](Random& random) { return draw_short(random, 5, true); }},
    {"Q4_K", [](Random& random) { return draw_groups(random, 4); }},
    {"Q5_K", [](Random& random) { return draw_groups(random, 5); }},
    {"Q6_K", draw_q6_k},
};

const GgufType& type_named(std::string_view name) {
  for (uint32_t number = 0; number < 100; ++number)
    if (const auto* type = find_gguf_type(number); type != nullptr && type->name == name)
      return *type;
  throw base::Error("no such type");
}

TEST(GgufTypes, BlocksGiveTheValuesTheyWerePackedFrom) {
  Random random(3);
  for (const auto& [name, draw_block] : kDraws) {
    const auto& type = type_named(name);
    EXPECT_EQ(name_of_gguf_type(type.number), name);
    for (int round = 0; round < 500; ++round) {
      Block all;
      for (int i = 0; i < 3; ++i) {
        const auto block = draw_block(random);
        all.bytes += block.bytes;
        all.values.insert(all.values.end(), block.values.begin(), block.values.end());
      }
      ASSERT_EQ(all.bytes.size(), 3 * type.bytes) << name;
      ASSERT_EQ(all.values.size(), 3 * type.block) << name;
      std::vector<float> got(all.values.size());
      decode_gguf(type, std::as_bytes(std::span(all.bytes)), got);
      for (size_t i = 0; i < got.size(); ++i) {
        if (std::isnan(all.values[i])) {
          ASSERT_TRUE(std::isnan(got[i])) << name << " at " << i;
        } else {
          ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(all.values[i]))
              << name << " at " << i << ": " << got[i] << " for " << all.values[i];
        }
      }
    }
  }
  EXPECT_EQ(kDraws.size(), 11u);
}

TEST(GgufTypes, EveryOtherTypeIsUnknown) {
  size_t known = 0;
  for (uint32_t number = 0; number < 1000; ++number) known += find_gguf_type(number) != nullptr;
  EXPECT_EQ(known, kDraws.size());
  EXPECT_EQ(name_of_gguf_type(10), "Q2_K");
  EXPECT_EQ(name_of_gguf_type(23), "IQ4_XS");
  EXPECT_EQ(name_of_gguf_type(41), "Q1_0");
  EXPECT_EQ(name_of_gguf_type(UINT32_MAX), "number 4294967295");
}

TEST(GgufTypes, BlocksMustBeWhole) {
  std::vector<float> values(32);
  const std::string bytes(17, '\0');
  const auto message = test::message_of<base::Error>(
      [&] { decode_gguf(type_named("Q4_0"), std::as_bytes(std::span(bytes)), values); });
  EXPECT_EQ(message,
            "decode_gguf: 32 numbers of Q4_0 must be whole blocks of 18 bytes, got 17 bytes");
}

}  // namespace
}  // namespace bmojo::model
