#include "bmojo/infer/snapshot.h"

#include <bit>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "bmojo/base/digest.h"
#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/json.h"
#include "bmojo/base/printable.h"

// magic · length of the header · header (JSON) · arrays · digest of all that stands before it.
// An array is its length and its numbers; a number alone is an array of one.

namespace bmojo::infer {
namespace fs = std::filesystem;
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are used as the file has them");

constexpr std::string_view kMagic = "BMOJOSTA";
constexpr int64_t kVersion = 2;
constexpr size_t kMaxHeaderBytes = size_t{1} << 16;
// No size of a memory without a limit overflows below it.
constexpr int64_t kMaxPosition = int64_t{1} << 39;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string header_of(const Origin& origin) {
  const base::Json header = {{"version", kVersion},
                             {"digest", origin.digest},
                             {"weight_type", kernels::name_of(origin.type)},
                             {"config", model::to_json(origin.config)}};
  return header.dump();
}

Origin origin_of(const base::Json& header, const std::string& subject) {
  const auto text = [&](const char* name) {
    base::require(header.contains(name) && header[name].is_string(), "{}: {} must be text", subject,
                  name);
    return header[name].get<std::string>();
  };
  base::require(header.is_object() && header.contains("version") && header["version"] == kVersion,
                "{}: version must be {}, got another; save the state with this program", subject,
                kVersion);
  base::require(header.contains("config") && header.size() == 4,
                "{}: header must hold version, digest, weight_type and config", subject);
  const auto name = text("weight_type");
  const auto type = kernels::weight_type_of(name);
  base::require(type.has_value(), "{}: weight_type must be f32 or bf16, got {}", subject,
                base::in_quotes(name));
  return {text("digest"), *type, model::config_from_json(header["config"], subject)};
}

void require_same(const Origin& got, const Origin& wanted, const std::string& subject) {
  base::require(got.digest == wanted.digest,
                "{}: must be a state of this model, whose weights are {}, got one of '{}'", subject,
                wanted.digest, base::printable(got.digest, 80));
  base::require(got.type == wanted.type,
                "{}: must be a state of weights as {}, got {}; set --dtype {}", subject,
                kernels::name_of(wanted.type), kernels::name_of(got.type),
                kernels::name_of(got.type));
  const base::Json here = model::to_json(wanted.config), there = model::to_json(got.config);
  for (const auto& [name, value] : here.items())
    base::require(there[name] == value, "{}: {} must be {} as in this model, got {}", subject, name,
                  value.dump(), base::printable(there[name].dump(), 80));
}

// Every array of the memories in the file's order: each(name, array, how long it must be).
template <typename Self, typename Each>
void walk(Self& snapshot, const Each& each) {
  for (size_t i = 0; i < snapshot.state.layers.size(); ++i)
    visit_with_sizes(
        snapshot.state.layers[i],
        sizes_of(snapshot.origin.config, static_cast<int64_t>(i), snapshot.state.position),
        [&](const char* name, auto& array, uint64_t size) {
          each(fmt::format("layers.{}.{}", i, name), array, size);
        });
}

void require_size(std::string_view subject, std::string_view name, uint64_t got, uint64_t wanted) {
  base::require(got == wanted, "{}: {} must have length {}, got {}", subject, name, wanted, got);
}

class Writer {
 public:
  explicit Writer(const fs::path& path) : file_(path) {}

  void bytes(std::string_view text) {
    if (text.empty()) return;
    digest_.update(text);
    file_.write(text);
  }
  template <typename T>
  void number(T value) {
    static_assert(sizeof(T) == 8);
    bytes({reinterpret_cast<const char*>(&value), sizeof(T)});
  }
  template <typename Array>
  void array(const Array& array) {
    number(uint64_t{array.size()});
    bytes({reinterpret_cast<const char*>(array.data()), array.size() * sizeof(array[0])});
  }
  void commit() {
    file_.write(digest_.text());
    file_.commit();
  }

 private:
  base::AtomicFile file_;
  base::Digest digest_;
};

// Takes from the front of what is left.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& subject)
      : rest_(bytes), subject_(subject) {}

  std::span<const std::byte> bytes(uint64_t count, std::string_view name) {
    base::require(count <= rest_.size(), "{}: {} must end within the file, got {} bytes too many",
                  subject_, name, count - rest_.size());
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  template <typename T>
  void number(std::string_view name, T& to) {
    static_assert(sizeof(T) == 8);
    std::memcpy(&to, bytes(sizeof(T), name).data(), sizeof(T));
  }
  // An array of any length; where `size` is given, of that one. Nothing larger than the file is
  // ever made.
  template <typename Array>
  void array(std::string_view name, Array& to, const uint64_t* size = nullptr) {
    constexpr uint64_t kItem = sizeof(typename Array::value_type);
    uint64_t count = 0;
    number(name, count);
    if (size != nullptr) require_size(subject_, name, count, *size);
    base::require(count <= rest_.size() / kItem, "{}: {} must end within the file, got length {}",
                  subject_, name, count);
    to.resize(count);
    const auto from = bytes(count * kItem, name);
    if (count > 0) std::memcpy(to.data(), from.data(), from.size());
  }
  void finish() const {
    base::require(rest_.empty(), "{}: must end behind its arrays, got {} bytes more", subject_,
                  rest_.size());
  }

 private:
  std::span<const std::byte> rest_;
  const std::string& subject_;
};

void check_token(int64_t token, const model::Config& config, const std::string& subject) {
  base::require(token >= 0 && token < config.vocab_size, "{}: tokens must be from 0 to {}, got {}",
                subject, config.vocab_size - 1, token);
}

// Positions rise and lie in [0, end): they lead to rows of the memories.
void check_set(const LayerState::Set& set, int64_t end, const model::Config& config,
               const std::string& subject) {
  int64_t last = -1;
  for (const auto position : set.position) {
    base::require(position > last && position < end,
                  "{}: positions of a set must rise and be below {}, got {} behind {}", subject,
                  end, position, last);
    last = position;
  }
  for (const auto token : set.token) check_token(token, config, subject);
}

// What leads somewhere leads there, even in a file that was made to mislead.
void check_contents(const Snapshot& snapshot, const std::string& subject) {
  const auto& config = snapshot.origin.config;
  const int64_t position = snapshot.state.position;
  const memory::EideticMemory memory{memory::window_of(config.window)};
  base::require(snapshot.sampler.counter == static_cast<uint64_t>(position),
                "{}: sampler.counter must be the position = {}, got {}", subject, position,
                snapshot.sampler.counter);
  for (const auto token : snapshot.sampler.recent) check_token(token, config, subject);
  for (const auto& layer : snapshot.state.layers) {
    check_set(layer.frozen, memory.frozen_before(position), config, subject);
    check_set(layer.running, position, config, subject);
  }
}

// What stands in front of the digest; Error where the digest is not of it.
std::span<const std::byte> checked(std::span<const std::byte> file, const std::string& subject) {
  const size_t least = kMagic.size() + sizeof(uint64_t) + base::Digest::kTextSize;
  base::require(file.size() >= kMagic.size() && text_of(file).starts_with(kMagic),
                "{}: must be a state file, got a file of another kind", subject);
  base::require(file.size() >= least, "{}: must be a state file of at least {} bytes, got {}",
                subject, least, file.size());
  const auto before = file.first(file.size() - base::Digest::kTextSize);
  base::Digest digest;
  digest.update(before);
  base::require(
      text_of(file.last(base::Digest::kTextSize)) == digest.text(),
      "{}: must end with the digest {} of its bytes, got another; the file is cut short or "
      "damaged",
      subject, digest.text());
  return before.subspan(kMagic.size());
}

}  // namespace

void save_snapshot(const Snapshot& snapshot, const fs::path& path) {
  const auto& config = snapshot.origin.config;
  const auto subject = base::shown(path);
  require_size(subject, "layers", snapshot.state.layers.size(), uint64_t(config.num_layers));
  if (!snapshot.logits.empty())
    require_size(subject, "logits", snapshot.logits.size(), uint64_t(config.vocab_size));
  walk(snapshot, [&](const std::string& name, const auto& array, uint64_t size) {
    require_size(subject, name, array.size(), size);
  });
  Writer writer(path);
  writer.bytes(kMagic);
  writer.array(header_of(snapshot.origin));
  writer.number(snapshot.state.position);
  Sampler::visit(snapshot.sampler, [&](const char*, const auto& field) {
    if constexpr (std::is_integral_v<std::remove_cvref_t<decltype(field)>>)
      writer.number(field);
    else
      writer.array(field);
  });
  writer.array(snapshot.logits);
  walk(snapshot, [&](const std::string&, const auto& array, uint64_t) { writer.array(array); });
  writer.commit();
}

Snapshot read_snapshot(std::span<const std::byte> file, const std::string& subject,
                       const Origin* wanted) {
  Reader reader(checked(file, subject), subject);
  uint64_t length = 0;
  reader.number("header", length);
  base::require(length <= kMaxHeaderBytes, "{}: header must be at most {} bytes, got {}", subject,
                kMaxHeaderBytes, length);
  Snapshot out;
  out.origin =
      origin_of(base::parse_json(text_of(reader.bytes(length, "header")), subject), subject);
  if (wanted != nullptr) require_same(out.origin, *wanted, subject);
  const auto& config = out.origin.config;
  reader.number("position", out.state.position);
  base::require(out.state.position >= 0 && out.state.position <= kMaxPosition,
                "{}: position must be from 0 to {}, got {}", subject, kMaxPosition,
                out.state.position);
  Sampler::visit(out.sampler, [&](const char* name, auto& field) {
    if constexpr (std::is_integral_v<std::remove_cvref_t<decltype(field)>>)
      reader.number(name, field);
    else
      reader.array(name, field);
  });
  const auto vocabulary = static_cast<uint64_t>(config.vocab_size);
  reader.array("logits", out.logits);
  if (!out.logits.empty()) require_size(subject, "logits", out.logits.size(), vocabulary);
  out.state.layers.resize(static_cast<size_t>(config.num_layers));
  walk(out, [&](const std::string& name, auto& array, uint64_t size) {
    reader.array(name, array, &size);
  });
  reader.finish();
  check_contents(out, subject);
  return out;
}

Snapshot load_snapshot(const fs::path& path, const Origin* wanted) {
  const base::MappedFile file(path);
  return read_snapshot(file.bytes(), base::shown(path), wanted);
}

bool is_snapshot(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  const base::MappedFile file(path);
  return text_of(file.bytes()).starts_with(kMagic);
}

}  // namespace bmojo::infer
