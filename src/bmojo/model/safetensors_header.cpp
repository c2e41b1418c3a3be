#include "bmojo/model/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "bmojo/base/error.h"
#include "bmojo/base/json.h"
#include "bmojo/base/printable.h"

namespace bmojo::model {
namespace {

constexpr size_t kMaxTensors = 1'000'000;
constexpr size_t kMaxRank = 8;
// A map's node takes 96 bytes for as few as 7 of the header: unbounded, 14 times the header.
constexpr size_t kMaxMetadata = 1024;
// The lexer holds up to five times a token while its two buffers grow. No tensor's name comes near
// the first limit, and no number or indentation near the second.
constexpr size_t kMaxString = size_t{64} << 10;
constexpr size_t kMaxBetweenMarks = 1024;

void check_token_lengths(std::string_view text, const std::string& subject) {
  bool in_string = false;
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char byte = text[i];
    const size_t limit = in_string ? kMaxString : kMaxBetweenMarks;
    base::require(i - start <= limit,
                  "{}: header must hold at most {} bytes {}, got more at byte {}", subject, limit,
                  in_string ? "in a string" : "between two marks", start + 1);
    if (in_string && byte == '\\') {
      ++i;
    } else if (byte == '"') {
      in_string = !in_string;
      start = i;
    } else if (!in_string && (byte == ',' || byte == ':' || byte == '{' || byte == '}' ||
                              byte == '[' || byte == ']')) {
      start = i;
    }
  }
}

// A header nests in one way only, so the place alone says what may come, and no depth can build up:
// {"__metadata__": {name: string}, tensor: {"dtype": string, "shape": [n], "data_offsets": [n, n]}}
class HeaderReader final : public base::JsonEvents {
 public:
  using JsonEvents::JsonEvents;

  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { unexpected("null"); }
  bool boolean(bool value) override { unexpected(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { unexpected(fmt::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { unexpected(text); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::numbers) unexpected(fmt::to_string(value));
    const size_t limit = field_ == kShape ? kMaxRank : 2;
    if (num_numbers_ == limit) {
      base::fail("{} must hold at most {} numbers, got more", where(), limit);
    }
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      base::fail("{} must hold numbers below 2^63, got {}", where(), value);
    }
    numbers_[num_numbers_++] = static_cast<int64_t>(value);
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) {
      header_.metadata[name_] = value;
    } else if (place_ == Place::tensor && field_ == kDtype) {
      set_dtype(value);
    } else {
      unexpected(base::in_quotes(value));
    }
    return true;
  }

  bool key(string_t& name) override {
    if (place_ == Place::tensor) {
      set_field(name);
      return true;
    }
    if (place_ == Place::metadata) {
      if (header_.metadata.contains(name)) {
        base::fail("{}: __metadata__: {} must appear once, got it twice", subject(),
                   base::in_quotes(name));
      }
      base::require(header_.metadata.size() < kMaxMetadata,
                    "{}: __metadata__ must hold at most {} names, got more", subject(),
                    kMaxMetadata);
    }
    name_ = name;
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::header;
    } else if (place_ == Place::header && name_ == "__metadata__") {
      base::require(!std::exchange(metadata_seen_, true),
                    "{}: __metadata__ must appear once, got it twice", subject());
      place_ = Place::metadata;
    } else if (place_ == Place::header) {
      base::require(header_.tensors.size() < kMaxTensors,
                    "{}: must hold at most {} tensors, got more", subject(), kMaxTensors);
      header_.tensors.push_back({.name = name_, .dtype = Dtype::u8, .shape = {}});
      fields_seen_ = 0;
      place_ = Place::tensor;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      for (const unsigned field : {kDtype, kShape, kOffsets}) {
        if ((fields_seen_ & field) == 0) {
          base::fail("{}: {} must be given, got none", tensor(), name_of_field(field));
        }
      }
    }
    place_ = place_ == Place::header ? Place::outside : Place::header;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::tensor || field_ == kDtype) unexpected("a list");
    place_ = Place::numbers;
    num_numbers_ = 0;
    return true;
  }

  bool end_array() override {
    TensorInfo& last = header_.tensors.back();
    if (field_ == kShape) {
      last.shape.assign(numbers_.begin(), numbers_.begin() + num_numbers_);
    } else {
      if (num_numbers_ != 2) {
        base::fail("{} must be two numbers [begin, end], got {}", where(), num_numbers_);
      }
      last.begin = static_cast<size_t>(numbers_[0]);
      last.end = static_cast<size_t>(numbers_[1]);
      if (last.begin > last.end) {
        base::fail("{} must not end before they begin, got [{}, {}]", where(), last.begin,
                   last.end);
      }
    }
    place_ = Place::tensor;
    return true;
  }

 private:
  enum class Place { outside, header, metadata, tensor, numbers };
  enum Field : unsigned { kDtype = 1, kShape = 2, kOffsets = 4 };

  static std::string_view name_of_field(unsigned field) {
    return field == kDtype ? "dtype" : field == kShape ? "shape" : "data_offsets";
  }

  std::string tensor() const {
    return fmt::format("{}: tensor {}", subject(), base::in_quotes(name_));
  }
  std::string where() const { return fmt::format("{}: {}", tensor(), name_of_field(field_)); }

  [[noreturn]] void unexpected(std::string_view got) const {
    const std::string value = base::printable(got, 80);
    if (place_ == Place::outside)
      base::fail("{}: header must be an object, got {}", subject(), value);
    if (place_ == Place::metadata) {
      base::fail("{}: __metadata__: {} must be a string, got {}", subject(), base::in_quotes(name_),
                 value);
    }
    if (place_ == Place::header && name_ == "__metadata__") {
      base::fail("{}: __metadata__ must be an object of strings, got {}", subject(), value);
    }
    if (place_ == Place::header) {
      base::fail("{}: must be an object of dtype, shape and data_offsets, got {}", tensor(), value);
    }
    if (field_ == kDtype) base::fail("{} must be a string, got {}", where(), value);
    base::fail("{} must be a list of integers >= 0, got {}", where(), value);
  }

  void set_field(std::string_view name) {
    for (const Field field : {kDtype, kShape, kOffsets}) {
      if (name != name_of_field(field)) continue;
      if ((fields_seen_ & field) != 0) {
        base::fail("{}: {} must appear once, got it twice", tensor(), name);
      }
      fields_seen_ |= field;
      field_ = field;
      return;
    }
    base::fail("{}: must hold only dtype, shape and data_offsets, got {}", tensor(),
               base::in_quotes(name));
  }

  void set_dtype(std::string_view name) {
    try {
      header_.tensors.back().dtype = dtype_of(name);
    } catch (const base::Error& error) {
      base::fail("{}: {}", tensor(), error.what());
    }
    if (name_of(header_.tensors.back().dtype) != name) {
      base::fail("{} must be in capitals, got {}", where(), base::in_quotes(name));
    }
  }

  SafetensorsHeader header_;
  Place place_ = Place::outside;
  Field field_ = kDtype;
  unsigned fields_seen_ = 0;
  bool metadata_seen_ = false;
  std::string name_;
  std::array<int64_t, kMaxRank> numbers_{};
  size_t num_numbers_ = 0;
};

// Messages are made only where needed throughout: for every tensor, they would be most of the time.
void check_size(const TensorInfo& tensor, const std::string& subject) {
  const auto count = try_num_elements(tensor.shape);
  size_t bytes = 0;
  if (!count ||
      __builtin_mul_overflow(static_cast<size_t>(*count), size_of(tensor.dtype), &bytes)) {
    base::fail("{}: tensor {}: shape must have a product that fits 64 bits, got {}", subject,
               base::in_quotes(tensor.name), to_string(tensor.shape));
  }
  if (tensor.end - tensor.begin != bytes) {
    base::fail("{}: tensor {}: data_offsets must span {} bytes, as {} {} takes, got [{}, {}]",
               subject, base::in_quotes(tensor.name), bytes, name_of(tensor.dtype),
               to_string(tensor.shape), tensor.begin, tensor.end);
  }
}

// Tensors in order of their offsets must tile the data section.
void check_layout(std::deque<TensorInfo>& tensors, size_t data_bytes, const std::string& subject) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  size_t end = 0;
  for (const TensorInfo& tensor : tensors) {
    check_size(tensor, subject);
    if (tensor.begin != end) {
      const std::string rule =
          tensor.begin < end ? fmt::format("not overlap the tensor before, which ends at {}", end)
                             : fmt::format("leave no gap after byte {}", end);
      base::fail("{}: tensor {}: data_offsets must {}, got [{}, {}]", subject,
                 base::in_quotes(tensor.name), rule, tensor.begin, tensor.end);
    }
    end = tensor.end;
  }
  base::require(end == data_bytes, "{}: data must be {} bytes for its tensors, got {}{}", subject,
                end, data_bytes, data_bytes < end ? "; the file is cut off" : "");
}

void sort_by_name(std::deque<TensorInfo>& tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
}

// Of sorted tensors.
void check_names(const std::deque<TensorInfo>& tensors, const std::string& subject) {
  const auto twice =
      std::adjacent_find(tensors.begin(), tensors.end(),
                         [](const TensorInfo& a, const TensorInfo& b) { return a.name == b.name; });
  if (twice != tensors.end()) {
    base::fail("{}: tensor {} must appear once, got it twice", subject,
               base::in_quotes(twice->name));
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, size_t data_bytes,
                                           const std::string& subject) {
  base::require(!text.empty() && text.front() == '{', "{}: header must start with '{{', got {}",
                subject, text.empty() ? "nothing" : base::in_quotes(text.substr(0, 1)));
  // The format pads with spaces alone; JSON would let other blanks through.
  text = text.substr(0, text.find_last_not_of(' ') + 1);
  const bool padded_otherwise = std::string_view("\t\r\n").find(text.back()) != text.npos;
  base::require(!padded_otherwise, "{}: header must be padded with spaces, got another blank",
                subject);
  check_token_lengths(text, subject);

  HeaderReader reader(subject);
  base::parse_json(text, reader);
  SafetensorsHeader header = reader.take();
  // Names first: a tensor given twice also overlaps itself, and that would say less.
  sort_by_name(header.tensors);
  check_names(header.tensors, subject);
  check_layout(header.tensors, data_bytes, subject);
  sort_by_name(header.tensors);
  return header;
}

}  // namespace bmojo::model
