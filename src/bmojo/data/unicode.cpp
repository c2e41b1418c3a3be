#include "bmojo/data/unicode.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace bmojo::data {
namespace {

constexpr uint32_t kNumCodes = 0x110000;

std::unique_ptr<uint8_t[]> expand(const std::vector<CharacterRun>& runs) {
  auto flags = std::make_unique<uint8_t[]>(kNumCodes);
  for (size_t i = 0; i < runs.size(); ++i) {
    const uint32_t end = i + 1 < runs.size() ? runs[i + 1].first : kNumCodes;
    std::fill(flags.get() + runs[i].first, flags.get() + end, runs[i].flags);
  }
  return flags;
}

// How many bytes of the character at `p` are as they must be, and how many it takes.
struct Sequence {
  size_t good, size;  // size 0: no character begins with this byte
};

Sequence sequence_at(const char* p, const char* end) {
  const auto byte = [p](size_t i) { return static_cast<uint8_t>(p[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {1, 1};
  if (lead < 0xc2 || lead > 0xf4) return {1, 0};
  const size_t size = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // Neither overlong forms nor surrogates nor beyond U+10FFFF: it shows in the second byte.
  const uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  const auto have = static_cast<size_t>(end - p);
  size_t good = 1;
  while (good < std::min(size, have)) {
    const bool is_second = good == 1;
    if (byte(good) < (is_second ? low : 0x80) || byte(good) > (is_second ? high : 0xbf)) break;
    ++good;
  }
  return {good, size};
}

}  // namespace

const uint8_t* character_flags() {
  static const auto flags = expand(character_runs());
  return flags.get();
}

Utf8Fault find_utf8_fault(std::string_view text, size_t from) {
  const char* p = text.data() + from;
  const char* const end = text.data() + text.size();
  while (p < end) {
    uint64_t eight = 0;
    if (end - p >= 8) {
      std::memcpy(&eight, p, 8);
      if ((eight & 0x8080808080808080u) == 0) {
        p += 8;
        continue;
      }
    }
    const auto [good, size] = sequence_at(p, end);
    if (good != size) return {static_cast<size_t>(p - text.data()), good, size && p + good == end};
    p += size;
  }
  return {text.size(), 0, false};
}

std::string replace_utf8_faults(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (size_t at = 0; at < text.size();) {
    const auto fault = find_utf8_fault(text, at);
    out.append(text.substr(at, fault.at - at));
    if (fault.size > 0) out += "\xef\xbf\xbd";
    at = fault.at + fault.size;
  }
  return out;
}

}  // namespace bmojo::data
