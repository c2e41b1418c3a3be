#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bmojo::model {

enum class Dtype { f32, bf16, f16, f64, i64, i32, i16, i8, u8, boolean };

size_t size_of(Dtype dtype);
std::string_view name_of(Dtype dtype);  // "F32", as the file writes it
Dtype dtype_of(std::string_view name);  // from "F32" or "f32"; Error otherwise

using Shape = std::vector<int64_t>;
std::string to_string(const Shape& shape);  // "[2, 3]"
int64_t num_elements(const Shape& shape);   // Error on overflow or a negative size
std::optional<int64_t> try_num_elements(const Shape& shape);  // nothing where that is an Error

// float <-> stored form, element by element; `bytes` holds out.size() elements of `dtype`
// (f32, bf16, f16 or f64). Rounding to nearest even; NaN stays NaN.
void to_float(std::span<const std::byte> bytes, Dtype dtype, std::span<float> out);
void from_float(std::span<const float> values, Dtype dtype, std::span<std::byte> out);
// Error, which starts with `subject`, for a finite value that f16 would round to infinity.
void require_below_f16_limit(std::span<const float> values, std::string_view subject);

}  // namespace bmojo::model
