#include "bmojo/data/text_stream.h"

#include <utility>

#include "bmojo/data/unicode.h"

namespace bmojo::data {

std::string TextStream::push(int32_t id) {
  const auto bytes = tokenizer_.decode_behind(id);
  // A blank that begins the text is dropped by some tokenizers; a part of a character never is.
  const bool is_part = bytes.size() == 1 && static_cast<uint8_t>(bytes[0]) >= 0x80;
  held_ += started_ || is_part ? bytes : tokenizer_.decode({&id, 1});
  started_ = started_ || !bytes.empty();
  const auto fault = [&] {
    auto found = find_utf8_fault(held_);
    while (found.at < held_.size() && !found.is_cut)
      found = find_utf8_fault(held_, found.at + found.size);
    return found;
  }();
  const auto rest = held_.substr(fault.at);
  held_.resize(fault.at);
  return replace_utf8_faults(std::exchange(held_, rest));
}

std::string TextStream::finish() {
  started_ = false;
  return replace_utf8_faults(std::exchange(held_, {}));
}

}  // namespace bmojo::data
