#include "bmojo/data/splitter.h"

#include "bmojo/data/unicode.h"

namespace bmojo::data {
namespace {

bool is_break(char c) { return c == '\r' || c == '\n'; }

// The bytes of 's, 't, 're, 've, 'm, 'll or 'd at `p`, which is an apostrophe; 0 for none.
template <bool kAnyCase>
size_t contraction(const char* p, const char* end) {
  const auto at = [&](int i) {
    if (end - p <= i) return '\0';
    const char c = p[i];
    return kAnyCase && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  };
  switch (at(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return at(2) == 'e' ? 3 : 0;
    case 'l':
      return at(2) == 'l' ? 3 : 0;
    case '\xc5':  // U+017F, the long s, is an s in any case
      return kAnyCase && at(2) == '\xbf' ? 3 : 0;
    default:
      return 0;
  }
}

}  // namespace

Splitter::Splitter(SplitPattern pattern) : pattern_(pattern), flags_(character_flags()) {}

uint8_t Splitter::class_at(const char* p) const {
  const auto byte = static_cast<uint8_t>(*p);
  return flags_[byte < 0x80 ? byte : character_at(p).code] & kClassBits;
}

// The end of a run of one class.
const char* Splitter::skip(uint8_t kind, const char* p, const char* end) const {
  while (p < end) {
    const auto byte = static_cast<uint8_t>(*p);
    const auto character = byte < 0x80 ? Character{byte, 1} : character_at(p);
    if ((flags_[character.code] & kClassBits) != kind) break;
    p += character.size;
  }
  return p;
}

// S+(?!\S)|S+: the last space is left to the word behind it, unless it is the only one.
const char* Splitter::spaces_end(const char* begin, const char* end) const {
  const char* const stop = skip(kSpace, begin, end);
  if (stop == end) return stop;
  if (pattern_ == SplitPattern::kDigits && class_at(stop) == kNumber) return stop;
  const char* last = stop;
  do --last;
  while ((static_cast<uint8_t>(*last) & 0xc0) == 0x80);
  return last == begin ? stop : last;
}

const char* Splitter::gpt2_end(const char* begin, const char* end) const {
  const bool digits = pattern_ == SplitPattern::kDigits;
  if (*begin == '\'') {
    if (const size_t size = contraction<false>(begin, end)) return begin + size;
  }
  const char* const p = begin + (*begin == ' ' && begin + 1 < end ? 1 : 0);
  const uint8_t kind = class_at(p);
  if (kind == kSpace || (digits && kind == kNumber && p > begin)) return spaces_end(begin, end);
  if (digits && kind == kNumber) return begin + character_at(begin).size;
  return skip(kind, p, end);
}

const char* Splitter::llama3_end(const char* begin, const char* end) const {
  if (*begin == '\'') {
    if (const size_t size = contraction<true>(begin, end)) return begin + size;
  }
  const uint8_t kind = class_at(begin);
  if (kind == kLetter) return skip(kLetter, begin, end);
  const char* const next = begin + character_at(begin).size;
  if (kind == kNumber) {
    const char* p = next;
    for (int i = 1; i < 3 && p < end && class_at(p) == kNumber; ++i) p += character_at(p).size;
    return p;
  }
  const uint8_t next_kind = next < end ? class_at(next) : uint8_t{kSpace};
  if (!is_break(*begin) && next < end && next_kind == kLetter) return skip(kLetter, next, end);
  if (kind == kOther || (*begin == ' ' && next_kind == kOther)) {
    const char* p = skip(kOther, kind == kOther ? begin : next, end);
    while (p < end && is_break(*p)) ++p;
    return p;
  }
  // S*[\r\n]+ ends behind the last break of the run.
  for (const char* p = skip(kSpace, begin, end); p > begin; --p)
    if (is_break(p[-1])) return p;
  return spaces_end(begin, end);
}

const char* Splitter::word_end(const char* begin, const char* end) const {
  return pattern_ == SplitPattern::kLlama3 ? llama3_end(begin, end) : gpt2_end(begin, end);
}

}  // namespace bmojo::data
