#include "bmojo/model/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "bmojo/base/digest.h"
#include "bmojo/base/error.h"
#include "bmojo/base/input.h"
#include "bmojo/base/json.h"
#include "bmojo/base/printable.h"
#include "bmojo/model/safetensors_header.h"

namespace bmojo::model {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are used as the file has them");

constexpr size_t kLengthBytes = sizeof(uint64_t);  // before the header
constexpr size_t kAlignment = 64;                  // of the data section that is written
constexpr size_t kMixUpBytes = 1024;               // looked at for what else a file may be

std::string json_string(std::string_view text, const std::string& subject) {
  try {
    return base::Json(text).dump();
  } catch (const base::Json::exception&) {
    base::fail("{}: names and metadata must be UTF-8, got {}", subject, base::in_quotes(text));
  }
}

std::string json_entry(const TensorInfo& tensor, const std::string& subject) {
  return fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                     json_string(tensor.name, subject), name_of(tensor.dtype),
                     fmt::join(tensor.shape, ","), tensor.begin, tensor.end);
}

// Fills in begin and end; returns the bytes of all.
size_t lay_out(std::vector<TensorInfo>& tensors, const std::string& subject) {
  size_t end = 0;
  for (TensorInfo& tensor : tensors) {
    const auto count = try_num_elements(tensor.shape);
    size_t bytes = 0;
    tensor.begin = end;
    base::require(
        count &&
            !__builtin_mul_overflow(static_cast<size_t>(*count), size_of(tensor.dtype), &bytes) &&
            !__builtin_add_overflow(end, bytes, &end),
        "{}: tensor {}: shape must hold sizes >= 0 that fit a file, got {}", subject,
        base::in_quotes(tensor.name), to_string(tensor.shape));
    tensor.end = end;
  }
  return end;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(std::make_shared<base::MappedFile>(path)) {
  const std::string subject = base::printable(path.string());
  const auto bytes = file_->bytes();
  const auto other = base::mix_up(
      {reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kMixUpBytes)});
  base::require(other.empty(), "{}: must be a safetensors file, got {}", subject, other);
  base::require(bytes.size() >= kLengthBytes,
                "{}: must be a safetensors file of at least {} bytes, got {}", subject,
                kLengthBytes, bytes.size());
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  base::require(
      length <= kMaxHeaderBytes,
      "{}: must be a safetensors file, got a file of another kind; its header would be longer "
      "than {} bytes",
      subject, kMaxHeaderBytes);
  base::require(length <= bytes.size() - kLengthBytes,
                "{}: header must be {} bytes, as the file says, got {}; the file is cut off",
                subject, length, bytes.size() - kLengthBytes);
  const auto header = bytes.subspan(kLengthBytes, length);
  data_ = bytes.subspan(kLengthBytes + length);

  auto parsed = parse_safetensors_header(
      {reinterpret_cast<const char*>(header.data()), header.size()}, data_.size(), subject);
  tensors_ = std::move(parsed.tensors);
  metadata_ = std::move(parsed.metadata);
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto before = [](const TensorInfo& tensor, std::string_view key) {
    return tensor.name < key;
  };
  const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name, before);
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

std::span<std::byte> SafetensorsFile::bytes(const TensorInfo& tensor) const {
  base::require(tensor.begin <= tensor.end && tensor.end <= data_.size(),
                "{}: tensor {} must be one of this file's, got [{}, {}]",
                base::printable(file_->path().string()), base::in_quotes(tensor.name), tensor.begin,
                tensor.end);
  return data_.subspan(tensor.begin, tensor.end - tensor.begin);
}

std::string stored_digest(const SafetensorsFile& file) {
  const auto it = file.metadata().find(std::string(kDigestName));
  return it == file.metadata().end() ? "" : it->second;
}

std::string digest_of(std::span<const std::byte> data,
                      const std::function<void(size_t)>& progress) {
  constexpr size_t kStep = size_t{16} << 20;
  base::Digest digest;
  for (size_t done = 0; done < data.size();) {
    const auto piece = data.subspan(done, std::min(kStep, data.size() - done));
    digest.update(piece);
    done += piece.size();
    if (progress) progress(done);
  }
  return digest.text();
}

struct SafetensorsWriter::Impl {
  explicit Impl(const std::filesystem::path& path)
      : subject(base::printable(path.string())), file(path) {}

  std::string subject;
  base::AtomicFile file;
  size_t data_bytes = 0, written = 0, data_offset = 0;
  std::unique_ptr<base::Digest> digest;
  size_t digest_offset = 0;  // in the file, of its text

  // "__metadata__" and its map, sorted; notes where the digest's text will stand.
  std::string metadata_entry(const std::map<std::string, std::string>& metadata, size_t offset) {
    std::string out = R"("__metadata__":{)";
    for (const auto& [name, value] : metadata) {
      if (out.back() != '{') out += ',';
      out += json_string(name, subject) + ":";
      if (digest && name == kDigestName) digest_offset = offset + out.size() + 1;
      out += json_string(value, subject);
    }
    return out + "}";
  }
};

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<TensorInfo> tensors,
                                     std::map<std::string, std::string> metadata, bool digest)
    : impl_(std::make_unique<Impl>(path)) {
  Impl& impl = *impl_;
  impl.data_bytes = lay_out(tensors, impl.subject);
  if (digest) {
    impl.digest = std::make_unique<base::Digest>();
    metadata[std::string(kDigestName)] = std::string(base::Digest::kTextSize, '0');
  }

  std::string header = "{";
  if (!metadata.empty()) header += impl.metadata_entry(metadata, kLengthBytes + header.size());
  for (const TensorInfo& tensor : tensors) {
    if (header.size() > 1) header += ',';
    header += json_entry(tensor, impl.subject);
  }
  header += '}';
  const size_t used = kLengthBytes + header.size();
  header.append((kAlignment - used % kAlignment) % kAlignment, ' ');

  // Whatever would be refused on reading (a name twice, a rank of nine) is refused before writing.
  base::require(header.size() <= kMaxHeaderBytes, "{}: header must be at most {} bytes, got {}",
                impl.subject, kMaxHeaderBytes, header.size());
  parse_safetensors_header(header, impl.data_bytes, impl.subject);

  const uint64_t length = header.size();
  impl.data_offset = kLengthBytes + header.size();
  impl.file.write(std::as_bytes(std::span(&length, 1)));
  impl.file.write(header);
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  Impl& impl = *impl_;
  base::require(bytes.size() <= impl.data_bytes - impl.written,
                "{}: data must be {} bytes for its tensors, got more", impl.subject,
                impl.data_bytes);
  impl.file.write(bytes);
  if (impl.digest) impl.digest->update(bytes);
  impl.written += bytes.size();
}

size_t SafetensorsWriter::data_offset() const { return impl_->data_offset; }

void SafetensorsWriter::commit() {
  Impl& impl = *impl_;
  base::require(impl.written == impl.data_bytes,
                "{}: data must be {} bytes for its tensors, got {}", impl.subject, impl.data_bytes,
                impl.written);
  if (impl.digest) impl.file.overwrite(impl.digest_offset, impl.digest->text());
  impl.file.commit();
}

}  // namespace bmojo::model
