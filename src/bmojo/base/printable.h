#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace bmojo::base {

// Text from a file, made safe for a one-line message: control characters (C0, C1, DEL) become
// escapes, and what exceeds `limit` bytes is cut between UTF-8 characters.
inline std::string printable(std::string_view text, size_t limit = std::string_view::npos) {
  const bool cut = text.size() > limit;
  if (cut) {
    while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;
    text = text.substr(0, limit);
  }
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {
      out += fmt::format("\\u{:04x}", next);
      ++i;
    } else {
      out += text[i];
    }
  }
  return cut ? out + "…" : out;
}

// Text as it comes, for people who watch: nobody else may move their cursor. Control characters but
// line breaks and tabs become question marks. It must not be cut within a character.
inline std::string watchable(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    const bool is_c1 = byte == 0xc2 && next >= 0x80 && next < 0xa0;
    const bool is_c0 = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
    out += is_c0 || is_c1 ? '?' : text[i];
    i += is_c1;
  }
  return out;
}

inline std::string in_quotes(std::string_view text) { return "'" + printable(text, 80) + "'"; }

}  // namespace bmojo::base
