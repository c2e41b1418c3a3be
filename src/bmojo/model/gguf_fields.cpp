#include "bmojo/model/gguf_fields.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"

namespace bmojo::model {
namespace {

template <typename Number>
Number number_of(const GgufValue& value) {
  Number number;
  std::memcpy(&number, value.bytes.data(), sizeof number);
  return number;
}

// Nothing for what is no whole number, or none below 2^63.
std::optional<int64_t> integer_of(const GgufValue& value) {
  switch (value.kind) {
    case GgufKind::u8:
      return number_of<uint8_t>(value);
    case GgufKind::i8:
      return number_of<int8_t>(value);
    case GgufKind::u16:
      return number_of<uint16_t>(value);
    case GgufKind::i16:
      return number_of<int16_t>(value);
    case GgufKind::u32:
      return number_of<uint32_t>(value);
    case GgufKind::i32:
      return number_of<int32_t>(value);
    case GgufKind::i64:
      return number_of<int64_t>(value);
    case GgufKind::u64: {
      const auto number = number_of<uint64_t>(value);
      if (number >> 63 != 0) return {};
      return static_cast<int64_t>(number);
    }
    default:
      return {};
  }
}

// The shortest decimal that gives the float, as a double: 1e-5 was meant, not 9.99999975e-06.
double double_of(float value) {
  const auto text = fmt::format("{}", value);
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string_view text_of(const GgufValue& value) {
  return {reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()};
}

std::string shown_value(const GgufValue& value) {
  if (value.kind == GgufKind::string) return base::in_quotes(text_of(value));
  if (value.kind == GgufKind::boolean)
    return value.bytes.front() == std::byte{1} ? "true" : "false";
  if (value.kind == GgufKind::f32) return fmt::to_string(number_of<float>(value));
  if (value.kind == GgufKind::f64) return fmt::to_string(number_of<double>(value));
  if (value.kind == GgufKind::u64) return fmt::to_string(number_of<uint64_t>(value));
  const auto integer = integer_of(value);
  return integer ? fmt::to_string(*integer) : name_of(value);
}

}  // namespace

const GgufValue* GgufFields::find(std::string_view key) const {
  asked_.emplace(key);
  return header_.find(key);
}

void GgufFields::refuse(std::string_view key, std::string_view requirement) const {
  const GgufValue* value = header_.find(key);
  base::fail("{}: {} must be {}, got {}", subject_, base::printable(key, 80), requirement,
             value == nullptr ? "none" : shown_value(*value));
}

void GgufFields::refuse_unknown(std::string_view prefix) const {
  for (const auto& field : header_.fields)
    if (field.key.starts_with(prefix) && !asked_.contains(field.key))
      base::fail("{}: {} is a key that bmojo does not have, got {}", subject_,
                 base::printable(field.key, 80), shown_value(field.value));
}

std::optional<std::string_view> GgufFields::text(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return {};
  if (value->kind != GgufKind::string) refuse(key, "a string");
  return text_of(*value);
}

std::optional<bool> GgufFields::flag(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return {};
  if (value->kind != GgufKind::boolean) refuse(key, "true or false");
  return value->bytes.front() == std::byte{1};
}

std::optional<int64_t> GgufFields::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return {};
  const auto integer = integer_of(*value);
  if (!integer) refuse(key, "a whole number below 2^63");
  return integer;
}

std::optional<double> GgufFields::number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return {};
  if (value->kind == GgufKind::f64) return number_of<double>(*value);
  if (value->kind != GgufKind::f32) refuse(key, "a number of floating point");
  const auto number = number_of<float>(*value);
  return std::isfinite(number) ? double_of(number) : number;
}

const GgufValue* GgufFields::array(std::string_view key, GgufKind item) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  if (value->kind != GgufKind::array || value->item != item)
    refuse(key, name_of(GgufValue{.kind = GgufKind::array, .item = item, .bytes = {}}));
  return value;
}

int64_t GgufFields::size(std::string_view key, std::optional<int64_t> fallback) const {
  constexpr int64_t kMax = int64_t{1} << 31;
  const auto value = integer(key);
  if (!value && fallback) return *fallback;
  if (!value || *value < 1 || *value > kMax) refuse(key, "a whole number from 1 to 2^31");
  return *value;
}

double GgufFields::positive(std::string_view key, std::optional<double> fallback) const {
  const auto value = number(key);
  if (!value && fallback) return *fallback;
  if (!value || !(*value > 0) || !std::isfinite(*value)) refuse(key, "a number above 0");
  return *value;
}

}  // namespace bmojo::model
