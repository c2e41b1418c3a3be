#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "bmojo/base/error.h"

// libFuzzer calls LLVMFuzzerTestOneInput() with bytes of its own making, and the sanitizers end the
// program at a fault. What a reader of files owes besides: it takes the bytes, or refuses them with
// an Error of one short printable line.

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace bmojo::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline void demand(bool holds, std::string_view what, std::string_view about = {}) {
  if (holds) return;
  std::fprintf(stderr, "%.*s: %.*s\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(about.size()), about.data());
  std::abort();
}

inline void check_message(std::string_view message) {
  constexpr size_t kLongest = 1000;
  demand(message.size() < kLongest, "message must be short", message);
  for (const char byte : message) {
    const bool is_control = static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f;
    demand(!is_control, "message must be printable", message);
  }
}

// Anything but an Error is a finding.
template <typename Parse>
void parse_or_refuse(const Parse& parse) {
  try {
    parse();
  } catch (const base::Error& error) {
    check_message(error.what());
  }
}

}  // namespace bmojo::fuzz
