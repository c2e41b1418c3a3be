#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bmojo::data {

// What byte-level tokenizers ask of a code point: its class by Unicode 16.0, and what NFC does.
enum CharacterClass : uint8_t { kOther = 0, kLetter = 1, kNumber = 2, kSpace = 3 };
inline constexpr uint8_t kClassBits = 3;
// NFC may change it, or move or compose it with what stands before.
inline constexpr uint8_t kUnstable = 4;
// Younger than the NFC of `tokenizers`, which neither moves nor composes it.
inline constexpr uint8_t kNewer = 8;

// Code points from `first` up to the next run's.
struct CharacterRun {
  uint32_t first;
  uint8_t flags;
};
const std::vector<CharacterRun>& character_runs();  // unicode_table.cpp

// The flags of all 0x110000 code points.
const uint8_t* character_flags();

struct Character {
  uint32_t code;
  uint32_t size;  // in bytes
};

// The character that begins at `p`, in valid UTF-8.
inline Character character_at(const char* p) {
  const auto byte = [p](int i) { return static_cast<uint32_t>(static_cast<uint8_t>(p[i])); };
  const auto tail = [&](int i) { return byte(i) & 0x3f; };
  if (byte(0) < 0x80) return {byte(0), 1};
  if (byte(0) < 0xe0) return {(byte(0) & 0x1f) << 6 | tail(1), 2};
  if (byte(0) < 0xf0) return {(byte(0) & 0x0f) << 12 | tail(1) << 6 | tail(2), 3};
  return {(byte(0) & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3), 4};
}

// Where UTF-8 is broken: the longest beginning of a character that cannot be continued, or one
// byte.
struct Utf8Fault {
  size_t at, size;  // at == text.size(): none
  bool is_cut;      // the text ends within a character
};
Utf8Fault find_utf8_fault(std::string_view text, size_t from = 0);

// With U+FFFD for each fault, as Python's decode(errors="replace") has it.
std::string replace_utf8_faults(std::string_view text);

}  // namespace bmojo::data
