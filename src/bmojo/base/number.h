#pragma once

#include <charconv>
#include <string_view>
#include <type_traits>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"

namespace bmojo::base {

// The number that all of a text is, in base 10. Error with `subject` where it is none, or is not
// from `least` to `most`.
template <typename Number>
Number parse_number(std::string_view text, std::string_view subject, Number least, Number most) {
  constexpr auto kKind = std::is_integral_v<Number> ? "whole number in digits" : "number";
  const auto digits = text.substr(text.starts_with('+') && !text.starts_with("+-") ? 1 : 0);
  const char *begin = digits.data(), *end = begin + digits.size();
  Number value{};
  const auto [at, error] = std::from_chars(begin, end, value);
  const bool is_number = value == value;  // not NaN
  require(error != std::errc::invalid_argument && at == end && is_number,
          "{}: must be a {}, got {}", subject, kKind, in_quotes(text));
  require(error == std::errc() && value >= least && value <= most,
          "{}: must be from {} to {}, got {}", subject, least, most, printable(text, 80));
  return value;
}

}  // namespace bmojo::base
