#include "bmojo/model/gguf_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"

namespace bmojo::model {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are used as the file has them");

constexpr size_t kMaxHeader = 100'000'000;  // bytes
constexpr size_t kMaxFields = 65'536;
constexpr size_t kMaxTensors = 1'000'000;
constexpr size_t kMaxKey = 65'535;  // bytes; the format's
constexpr size_t kMaxName = 64;     // of a tensor; the format's
constexpr uint32_t kMaxRank = 4;    // the format's
constexpr uint64_t kDefaultAlignment = 32, kMaxAlignment = uint64_t{1} << 20;
constexpr std::string_view kAlignmentKey = "general.alignment";

struct Kind {
  std::string_view name;
  size_t bytes;  // 0: not of one size
};
constexpr std::array<Kind, 13> kKinds{{{"u8", 1},
                                       {"i8", 1},
                                       {"u16", 2},
                                       {"i16", 2},
                                       {"u32", 4},
                                       {"i32", 4},
                                       {"f32", 4},
                                       {"bool", 1},
                                       {"string", 0},
                                       {"array", 0},
                                       {"u64", 8},
                                       {"i64", 8},
                                       {"f64", 8}}};

const Kind& kind_of(GgufKind kind) { return kKinds[static_cast<size_t>(kind)]; }

template <typename Number>
Number number_at(const std::byte* p) {
  Number number;
  std::memcpy(&number, p, sizeof number);
  return number;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool is_printable_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
}

// Walks through the header; what would lie outside of it is refused.
class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> file, const std::string& subject)
      : bytes_(file.first(std::min(file.size(), kMaxHeader))),
        cut_(file.size() <= kMaxHeader),
        subject_(subject) {}

  size_t position() const { return at_; }
  std::span<const std::byte> since(size_t begin) const {
    return bytes_.subspan(begin, at_ - begin);
  }

  // `what` is for the message.
  std::span<const std::byte> take(uint64_t count, std::string_view what) {
    if (count > bytes_.size() - at_) {
      base::require(cut_, "{}: header must be at most {} bytes, got more at {}", subject_,
                    kMaxHeader, what);
      base::fail("{}: {} must take {} bytes at byte {}, got {}; the file is cut off or damaged",
                 subject_, what, count, at_, bytes_.size() - at_);
    }
    const auto taken = bytes_.subspan(at_, count);
    at_ += count;
    return taken;
  }
  template <typename Number>
  Number number(std::string_view what) {
    return number_at<Number>(take(sizeof(Number), what).data());
  }
  std::string_view string(std::string_view what, size_t limit) {
    const auto length = number<uint64_t>(what);
    if (length > limit)
      base::fail("{}: {} must be at most {} bytes, got {}", subject_, what, limit, length);
    return text_of(take(length, what));
  }
  // A key or a tensor's name.
  std::string_view name(std::string_view what, size_t limit) {
    const auto text = string(what, limit);
    if (text.empty() || !is_printable_ascii(text))
      base::fail("{}: {} must be printable ASCII, got {}", subject_, what, base::in_quotes(text));
    return text;
  }

 private:
  std::span<const std::byte> bytes_;
  bool cut_;  // the file ends where `bytes_` do
  const std::string& subject_;
  size_t at_ = 0;
};

GgufKind read_kind(HeaderReader& reader, const std::string& what, const std::string& subject) {
  const auto number = reader.number<uint32_t>(what);
  if (number >= kKinds.size())
    base::fail("{}: {} must be of a type from 0 to {}, got {}", subject, what, kKinds.size() - 1,
               number);
  return static_cast<GgufKind>(number);
}

void check_booleans(std::span<const std::byte> bytes, const std::string& what,
                    const std::string& subject) {
  for (const std::byte byte : bytes)
    if (byte > std::byte{1})
      base::fail("{}: {} must be 0 or 1, got {}", subject, what, std::to_integer<int>(byte));
}

GgufValue read_array(HeaderReader& reader, const std::string& what, const std::string& subject) {
  GgufValue value{.kind = GgufKind::array, .item = read_kind(reader, what, subject), .bytes = {}};
  value.count = reader.number<uint64_t>(what);
  if (value.item == GgufKind::array)
    base::fail("{}: {} must be an array of plain values, got an array of arrays", subject, what);
  const size_t begin = reader.position();
  if (const size_t size = kind_of(value.item).bytes; size > 0) {
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(value.count, uint64_t{size}, &bytes))
      base::fail("{}: {} must have a length that fits a file, got {}", subject, what, value.count);
    const auto items = reader.take(bytes, what);
    if (value.item == GgufKind::boolean) check_booleans(items, what, subject);
  } else {
    for (uint64_t i = 0; i < value.count; ++i) reader.string(what, kMaxHeader);
  }
  value.bytes = reader.since(begin);
  return value;
}

GgufField read_field(HeaderReader& reader, const std::string& subject) {
  GgufField field{.key = reader.name("key", kMaxKey), .value = {}};
  const std::string what(base::printable(field.key, 80));
  const GgufKind kind = read_kind(reader, what, subject);
  if (kind == GgufKind::array) {
    field.value = read_array(reader, what, subject);
    return field;
  }
  field.value.kind = field.value.item = kind;
  field.value.bytes = kind == GgufKind::string
                          ? std::as_bytes(std::span(reader.string(what, kMaxHeader)))
                          : reader.take(kind_of(kind).bytes, what);
  if (kind == GgufKind::boolean) check_booleans(field.value.bytes, what, subject);
  return field;
}

// `begin` is counted from the data section, and `end` is filled in.
GgufTensor read_tensor(HeaderReader& reader, const std::string& subject) {
  GgufTensor tensor{.name = reader.name("tensor name", kMaxName), .type = nullptr, .shape = {}};
  const auto what = fmt::format("tensor {}", base::in_quotes(tensor.name));
  const auto rank = reader.number<uint32_t>(what);
  if (rank < 1 || rank > kMaxRank)
    base::fail("{}: {} must have 1 to {} dimensions, got {}", subject, what, kMaxRank, rank);
  for (uint32_t i = 0; i < rank; ++i) {
    const auto size = reader.number<uint64_t>(what);
    if (size < 1 || size > uint64_t{std::numeric_limits<int64_t>::max()})
      base::fail("{}: {} must have dimensions from 1 to 2^63 - 1, got {}", subject, what, size);
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
  }
  const auto type = reader.number<uint32_t>(what);
  tensor.type = find_gguf_type(type);
  if (tensor.type == nullptr)
    base::fail("{}: {} must be of type {}, got {}", subject, what, known_gguf_types(),
               name_of_gguf_type(type));
  const auto count = try_num_elements(tensor.shape);
  const auto block = static_cast<int64_t>(tensor.type->block);
  size_t bytes = 0;
  if (!count ||
      __builtin_mul_overflow(static_cast<size_t>(*count / block), tensor.type->bytes, &bytes))
    base::fail("{}: {} must have a size that fits a file, got {}", subject, what,
               to_string(tensor.shape));
  if (tensor.shape.back() % block != 0)
    base::fail("{}: {} must have rows of a multiple of {} numbers, as {} has them, got {}", subject,
               what, block, tensor.type->name, to_string(tensor.shape));
  tensor.begin = reader.number<uint64_t>(what);
  if (__builtin_add_overflow(tensor.begin, bytes, &tensor.end))
    base::fail("{}: {} must lie within the file, got offset {}", subject, what, tensor.begin);
  return tensor;
}

uint64_t alignment_of(const GgufHeader& header, const std::string& subject) {
  const GgufValue* value = header.find(kAlignmentKey);
  if (value == nullptr) return kDefaultAlignment;
  if (value->kind != GgufKind::u32)
    base::fail("{}: {} must be of type u32, got {}", subject, kAlignmentKey, name_of(*value));
  const auto alignment = number_at<uint32_t>(value->bytes.data());
  base::require(std::has_single_bit(alignment) && alignment <= kMaxAlignment,
                "{}: {} must be a power of two up to {}, got {}", subject, kAlignmentKey,
                kMaxAlignment, alignment);
  return alignment;
}

// Tensors in order of their offsets must fill the data section, each from the next multiple of the
// alignment on. Behind the last one there may be nothing, or what fills it up to such a multiple.
void check_layout(std::deque<GgufTensor>& tensors, size_t data, size_t file_bytes,
                  uint64_t alignment, const std::string& subject) {
  std::ranges::sort(tensors, {}, &GgufTensor::begin);
  const auto align = [&](size_t at) { return (at + alignment - 1) / alignment * alignment; };
  const size_t data_bytes = file_bytes - std::min(data, file_bytes);
  size_t end = 0;
  for (auto& tensor : tensors) {
    const size_t next = align(end);
    if (tensor.begin != next)
      base::fail(
          "{}: tensor {} must begin at {}, the next multiple of {} behind the tensor before, got "
          "{}",
          subject, base::in_quotes(tensor.name), next, alignment, tensor.begin);
    end = tensor.end;
    if (end > data_bytes)
      base::fail(
          "{}: tensor {} must end within the data, which has {} bytes, got {}; the file is cut off",
          subject, base::in_quotes(tensor.name), data_bytes, end);
    tensor.begin += data;
    tensor.end += data;
  }
  base::require(data_bytes == end || data_bytes == align(end),
                "{}: data must be {} bytes for its tensors, got {}", subject, end, data_bytes);
}

// Sorts by a name of each, which must be there once.
template <typename Items, typename Name>
void sort_by(Items& items, Name name, std::string_view what, const std::string& subject) {
  std::ranges::sort(items, {}, name);
  const auto twice = std::ranges::adjacent_find(items, {}, name);
  if (twice != items.end())
    base::fail("{}: {} {} must appear once, got it twice", subject, what,
               base::in_quotes((*twice).*name));
}

struct Counts {
  uint64_t tensors, fields;
};

Counts read_counts(HeaderReader& reader, const std::string& subject) {
  const auto magic = text_of(reader.take(kGgufMagic.size(), "magic"));
  base::require(magic == kGgufMagic, "{}: must be a GGUF file, got one that begins with {}",
                subject, base::in_quotes(magic));
  const auto version = reader.number<uint32_t>("version");
  base::require(version == 2 || version == 3, "{}: must be a GGUF file of version 2 or 3, got {}",
                subject,
                version != 0 && (version & 0xffff) == 0 ? "one for big-endian machines"
                                                        : fmt::format("version {}", version));
  const auto tensors = reader.number<uint64_t>("number of tensors");
  const auto fields = reader.number<uint64_t>("number of fields");
  base::require(tensors <= kMaxTensors, "{}: must hold at most {} tensors, got {}", subject,
                kMaxTensors, tensors);
  base::require(fields <= kMaxFields, "{}: must hold at most {} fields, got {}", subject,
                kMaxFields, fields);
  return {tensors, fields};
}

}  // namespace

const GgufValue* GgufHeader::find(std::string_view key) const {
  const auto at = std::ranges::lower_bound(fields, key, {}, &GgufField::key);
  return at != fields.end() && at->key == key ? &at->value : nullptr;
}

const GgufTensor* GgufHeader::find_tensor(std::string_view name) const {
  const auto at = std::ranges::lower_bound(tensors, name, {}, &GgufTensor::name);
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

GgufHeader parse_gguf_header(std::span<const std::byte> file, const std::string& subject) {
  HeaderReader reader(file, subject);
  const auto counts = read_counts(reader, subject);
  GgufHeader header;
  for (uint64_t i = 0; i < counts.fields; ++i) header.fields.push_back(read_field(reader, subject));
  sort_by(header.fields, &GgufField::key, "key", subject);
  const uint64_t alignment = alignment_of(header, subject);
  for (uint64_t i = 0; i < counts.tensors; ++i)
    header.tensors.push_back(read_tensor(reader, subject));
  // Names first: a tensor given twice also overlaps itself, and that would say less.
  sort_by(header.tensors, &GgufTensor::name, "tensor", subject);
  const size_t data = (reader.position() + alignment - 1) / alignment * alignment;
  check_layout(header.tensors, data, file.size(), alignment, subject);
  std::ranges::sort(header.tensors, {}, &GgufTensor::name);
  return header;
}

std::vector<std::string_view> strings_of(const GgufValue& array) {
  std::vector<std::string_view> strings;
  strings.reserve(array.count);
  for (auto rest = array.bytes; !rest.empty();) {
    const auto length = number_at<uint64_t>(rest.data());
    strings.push_back(text_of(rest.subspan(sizeof length, length)));
    rest = rest.subspan(sizeof length + length);
  }
  return strings;
}

std::string name_of(const GgufValue& value) {
  if (value.kind == GgufKind::array) return fmt::format("an array of {}", kind_of(value.item).name);
  return value.kind == GgufKind::string ? "a string"
                                        : fmt::format("a {}", kind_of(value.kind).name);
}

}  // namespace bmojo::model
