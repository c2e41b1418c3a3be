#include "bmojo/data/sentencepiece_model.h"

#include <cstdint>

namespace bmojo::data {
namespace {

// The fields of a protobuf message, one after the other.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  // False at the end, and where the message cannot be followed: then `broken`.
  bool next() {
    if (rest_.empty() || broken) return false;
    const uint64_t tag = varint();
    number = tag >> 3;
    is_value = (tag & 7) == 0;
    switch (tag & 7) {
      case 0:
        value = varint();
        break;
      case 1:
        bytes = take(8);
        break;
      case 2:
        bytes = take(varint());
        break;
      case 5:
        bytes = take(4);
        break;
      default:
        broken = true;
    }
    return !broken;
  }

  uint64_t number = 0;
  bool is_value = false, broken = false;
  uint64_t value = 0;      // where is_value
  std::string_view bytes;  // elsewhere: a text or a message

 private:
  uint64_t varint() {
    uint64_t result = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) break;
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      result |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return result;
    }
    broken = true;
    return 0;
  }
  std::string_view take(uint64_t size) {
    broken = broken || size > rest_.size();
    if (broken) return {};
    const auto result = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return result;
  }

  std::string_view rest_;
};

// Field numbers are those of sentencepiece_model.proto.
bool read_trainer_spec(std::string_view message, SentencePieceSpec& spec) {
  constexpr uint64_t kBpe = 2;
  Fields field(message);
  while (field.next()) {
    if (!field.is_value) continue;
    if (field.number == 3) spec.bpe = field.value == kBpe;
    if (field.number == 24) spec.whitespace_suffix = field.value != 0;
    if (field.number == 35) spec.byte_fallback = field.value != 0;
  }
  return !field.broken;
}

bool read_normalizer_spec(std::string_view message, SentencePieceSpec& spec) {
  Fields field(message);
  while (field.next()) {
    if (field.number == 2) spec.rewrites_characters = field.is_value || !field.bytes.empty();
    if (!field.is_value) continue;
    if (field.number == 3) spec.dummy_prefix = field.value != 0;
    if (field.number == 4) spec.removes_whitespace = field.value != 0;
    if (field.number == 5) spec.escapes_whitespace = field.value != 0;
  }
  return !field.broken;
}

}  // namespace

std::optional<SentencePieceSpec> read_sentencepiece_spec(std::string_view model) {
  SentencePieceSpec spec;
  Fields field(model);
  while (field.next()) {
    if (field.is_value) continue;
    if (field.number == 2 && !read_trainer_spec(field.bytes, spec)) return std::nullopt;
    if (field.number == 3 && !read_normalizer_spec(field.bytes, spec)) return std::nullopt;
  }
  return field.broken ? std::nullopt : std::optional(spec);
}

}  // namespace bmojo::data
