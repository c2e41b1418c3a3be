#include "bmojo/model/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "bmojo/base/bf16.h"
#include "bmojo/base/error.h"
#include "bmojo/base/f16.h"
#include "bmojo/base/printable.h"

namespace bmojo::model {
namespace {

struct DtypeRow {
  Dtype dtype;
  std::string_view name;
  size_t size;
};

constexpr std::array<DtypeRow, 10> kDtypes{{
    {Dtype::f32, "F32", 4},
    {Dtype::bf16, "BF16", 2},
    {Dtype::f16, "F16", 2},
    {Dtype::f64, "F64", 8},
    {Dtype::i64, "I64", 8},
    {Dtype::i32, "I32", 4},
    {Dtype::i16, "I16", 2},
    {Dtype::i8, "I8", 1},
    {Dtype::u8, "U8", 1},
    {Dtype::boolean, "BOOL", 1},
}};

const DtypeRow& row_of(Dtype dtype) {
  for (const DtypeRow& row : kDtypes) {
    if (row.dtype == dtype) return row;
  }
  base::fail("dtype: must be one of the known ones, got number {}", static_cast<int>(dtype));
}

float float_of_f64(double value) { return static_cast<float>(value); }

double f64_of_float(float value) { return value; }

uint16_t f16_of_float(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 31 << 15, magnitude = bits & 0x7fffffff;
  uint32_t half = 0;
  if (magnitude > 0x7f800000) {
    const uint32_t payload = (magnitude >> 13) & 0x3ff;
    half = 0x7c00 | (payload != 0 ? payload : 0x200);
  } else if (magnitude >= 0x47800000) {  // 2^16; just below, rounding carries into infinity
    half = 0x7c00;
  } else if (magnitude < 0x38800000) {  // 2^-14
    // The float just above 0.5 counts in steps of 2^-24, as f16's subnormals do: adding rounds.
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
  } else {
    half = (magnitude - ((127 - 15) << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

// Through small local blocks: stored bytes may be unaligned and may alias anything, and either
// would keep the compiler from vectorising the inner loop.
template <typename From, typename To, To (*kOne)(From)>
void convert(const void* from, void* to, size_t count) {
  constexpr size_t kBlock = 64;
  std::array<From, kBlock> in{};
  std::array<To, kBlock> out;
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  for (size_t done = 0; done < count; done += kBlock) {
    const size_t length = std::min(kBlock, count - done);
    std::memcpy(in.data(), source + done * sizeof(From), length * sizeof(From));
    for (size_t i = 0; i < kBlock; ++i) out[i] = kOne(in[i]);
    std::memcpy(target + done * sizeof(To), out.data(), length * sizeof(To));
  }
}

void check_sizes(std::string_view operation, Dtype dtype, size_t bytes, size_t count) {
  const bool floating =
      dtype == Dtype::f32 || dtype == Dtype::bf16 || dtype == Dtype::f16 || dtype == Dtype::f64;
  base::require(floating, "{}: dtype must be F32, BF16, F16 or F64, got {}", operation,
                name_of(dtype));
  base::require(bytes % size_of(dtype) == 0 && bytes / size_of(dtype) == count,
                "{}: {} elements of {} must take {} bytes, got {}", operation, count,
                name_of(dtype), count * size_of(dtype), bytes);
}

}  // namespace

size_t size_of(Dtype dtype) { return row_of(dtype).size; }

std::string_view name_of(Dtype dtype) { return row_of(dtype).name; }

Dtype dtype_of(std::string_view name) {
  const auto same = [](char upper, char given) {
    return upper == given || (upper >= 'A' && upper <= 'Z' && upper - 'A' + 'a' == given);
  };
  for (const DtypeRow& row : kDtypes) {
    if (std::equal(row.name.begin(), row.name.end(), name.begin(), name.end(), same)) {
      return row.dtype;
    }
  }
  std::string known;
  for (const DtypeRow& row : kDtypes) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  }
  base::fail("dtype: must be one of {}, got {}", known, base::in_quotes(name));
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::optional<int64_t> try_num_elements(const Shape& shape) {
  int64_t product = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(product, size, &product)) return std::nullopt;
  }
  return product;
}

int64_t num_elements(const Shape& shape) {
  const auto count = try_num_elements(shape);
  base::require(count.has_value(), "shape: must hold sizes >= 0 with a product below 2^63, got {}",
                to_string(shape));
  return *count;
}

void to_float(std::span<const std::byte> bytes, Dtype dtype, std::span<float> out) {
  check_sizes("to_float", dtype, bytes.size(), out.size());
  if (out.empty()) return;
  switch (dtype) {
    case Dtype::bf16:
      return convert<uint16_t, float, base::float_of_bf16>(bytes.data(), out.data(), out.size());
    case Dtype::f16:
      return convert<uint16_t, float, base::float_of_f16>(bytes.data(), out.data(), out.size());
    case Dtype::f64:
      return convert<double, float, float_of_f64>(bytes.data(), out.data(), out.size());
    default:
      std::memcpy(out.data(), bytes.data(), bytes.size());
  }
}

void from_float(std::span<const float> values, Dtype dtype, std::span<std::byte> out) {
  check_sizes("from_float", dtype, out.size(), values.size());
  if (values.empty()) return;
  switch (dtype) {
    case Dtype::bf16:
      return convert<float, uint16_t, base::bf16_of_float>(values.data(), out.data(),
                                                           values.size());
    case Dtype::f16:
      return convert<float, uint16_t, f16_of_float>(values.data(), out.data(), values.size());
    case Dtype::f64:
      return convert<float, double, f64_of_float>(values.data(), out.data(), values.size());
    default:
      std::memcpy(out.data(), values.data(), out.size());
  }
}

void require_below_f16_limit(std::span<const float> values, std::string_view subject) {
  constexpr float kLimit = 65520;
  for (const float value : values)
    base::require(!std::isfinite(value) || std::abs(value) < kLimit,
                  "{} must stay below {} for f16, got {}; choose bf16 or f32", subject, kLimit,
                  value);
}

}  // namespace bmojo::model
