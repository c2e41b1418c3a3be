#include "bmojo/data/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "bmojo/base/error.h"
#include "bmojo/data/unicode.h"

namespace bmojo::data {
namespace {

constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

int combining_class(int32_t code) { return utf8proc_get_property(code)->combining_class; }

// The library's own way orders marks by swapping neighbours: quadratic in their number.
void order_marks(std::vector<int32_t>& codes) {
  const auto is_mark = [](int32_t code) { return combining_class(code) != 0; };
  for (auto at = codes.begin(); at != codes.end();) {
    const auto first = std::find_if(at, codes.end(), is_mark);
    at = std::find_if_not(first, codes.end(), is_mark);
    std::stable_sort(first, at,
                     [](int32_t a, int32_t b) { return combining_class(a) < combining_class(b); });
  }
}

void append_nfc(std::string_view text, std::string& out) {
  constexpr size_t kMostOfOne = 8;  // code points that one decomposes into: 4 in Unicode 16
  std::vector<int32_t> codes;
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const auto [code, size] = character_at(p);
    int32_t parts[kMostOfOne];
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<int32_t>(code), parts, kMostOfOne, kOptions, &boundary);
    if (count < 0 || count > static_cast<utf8proc_ssize_t>(kMostOfOne))
      throw base::RunError(fmt::format("utf8proc: decomposing U+{:04X} failed", code));
    codes.insert(codes.end(), parts, parts + count);
    p += size;
  }
  order_marks(codes);
  const auto count =
      utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()), kOptions);
  if (count < 0) throw base::RunError(fmt::format("utf8proc: {}", utf8proc_errmsg(count)));
  codes.resize(static_cast<size_t>(count));
  for (const int32_t code : codes) {
    utf8proc_uint8_t bytes[4];
    const auto size = utf8proc_encode_char(code, bytes);
    out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  }
}

}  // namespace

std::string_view to_nfc(std::string_view text, std::string& buffer) {
  // Below U+0300, whose first byte this is, every character is stable; later bytes are smaller too.
  constexpr uint8_t kFirstUnstable = 0xcc;
  const uint8_t* const flags = character_flags();
  const char* const end = text.data() + text.size();
  const char* copied = text.data();  // all before it is in the buffer
  buffer.clear();
  for (const char* p = text.data(); p < end;) {
    if (static_cast<uint8_t>(*p) < kFirstUnstable) {
      ++p;
      continue;
    }
    auto character = character_at(p);
    if ((flags[character.code] & kUnstable) == 0) {
      p += character.size;
      continue;
    }
    // What is unstable, with the character before it: no composition reaches further.
    const char* begin = p;
    if (begin > copied) {
      do --begin;
      while ((static_cast<uint8_t>(*begin) & 0xc0) == 0x80);
      if (flags[character_at(begin).code] & kNewer) begin = p;
    }
    while (p < end && (character = character_at(p), flags[character.code] & kUnstable))
      p += character.size;
    buffer.append(copied, begin);
    append_nfc({begin, p}, buffer);
    copied = p;
  }
  if (copied == text.data()) return text;
  buffer.append(copied, end);
  return buffer;
}

}  // namespace bmojo::data
