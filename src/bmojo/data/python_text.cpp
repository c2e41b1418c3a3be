#include "bmojo/data/python_text.h"

#include <utf8proc.h>

#include <algorithm>

#include "bmojo/data/unicode.h"

namespace bmojo::data {
namespace {

// str.isspace() and \s: White_Space, and four separators of ASCII.
bool is_space(uint32_t code) {
  return (character_flags()[code] & kClassBits) == kSpace || (code >= 0x1c && code <= 0x1f);
}

bool is_tail(char byte) { return (static_cast<uint8_t>(byte) & 0xc0) == 0x80; }

void append_utf8(std::string& text, int32_t code) {
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(code, bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

}  // namespace

std::string_view strip_end(std::string_view text) {
  while (!text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && is_tail(text[start])) --start;
    if (!is_space(character_at(text.data() + start).code)) break;
    text = text.substr(0, start);
  }
  return text;
}

std::string_view strip(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const auto [code, size] = character_at(text.data() + at);
    if (!is_space(code)) break;
    at += size;
  }
  return strip_end(text.substr(at));
}

int64_t count_words(std::string_view text) {
  int64_t num_gaps = 0;
  bool in_gap = false;
  for (size_t at = 0; at < text.size();) {
    const auto [code, size] = character_at(text.data() + at);
    const bool space = is_space(code);
    num_gaps += space && !in_gap;
    in_gap = space;
    at += size;
  }
  return num_gaps + 1;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> words;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const auto [code, size] = character_at(text.data() + at);
    const bool space = is_space(code);
    if (!space && !in_word) words.emplace_back();
    if (!space) words.back() += text.substr(at, size);
    in_word = !space;
    at += size;
  }
  return words;
}

std::string single_spaced(std::string_view text) {
  std::string out;
  for (const auto& word : split(text)) out += (out.empty() ? "" : " ") + word;
  return out;
}

int64_t count_characters(std::string_view text) {
  return std::ssize(text) - std::ranges::count_if(text, is_tail);
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (size_t at = 0;;) {
    const size_t next = std::min(text.find(from, at), text.size());
    out += text.substr(at, next - at);
    if (next == text.size()) return out;
    out += to;
    at = next + from.size();
  }
}

std::string capitalized(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto [code, size] = character_at(text.data() + at);
    const auto signed_code = static_cast<int32_t>(code);
    append_utf8(out, at == 0 ? utf8proc_totitle(signed_code) : utf8proc_tolower(signed_code));
    at += size;
  }
  return out;
}

std::string lowered(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto [code, size] = character_at(text.data() + at);
    append_utf8(out, utf8proc_tolower(static_cast<int32_t>(code)));
    at += size;
  }
  return out;
}

}  // namespace bmojo::data
