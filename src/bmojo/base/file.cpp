#include "bmojo/base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"

namespace bmojo {
namespace fs = std::filesystem;
namespace {

std::string reason(int code = errno) { return std::generic_category().message(code); }

[[noreturn]] void fail_run(const fs::path& path, std::string_view action, int code = errno) {
  throw RunError(fmt::format("{}: {} failed: {}", shown(path), action, reason(code)));
}

// A folder that cannot be written is the caller's mistake, a full disk is not.
[[noreturn]] void fail_to_create(const fs::path& path, int code = errno) {
  if (code == ENOSPC || code == EDQUOT || code == EIO || code == EMFILE || code == ENFILE)
    fail_run(path, "creating", code);
  fail("{}: must be in a folder that can be written, got {}", shown(path), reason(code));
}

template <typename Call>
auto retried(Call call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator int() const { return value_; }

 private:
  int value_;
};

int open_to_read(const fs::path& path, int flags = 0) {
  return retried([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags); });
}

// A name beside `path` that no other process or earlier call uses.
fs::path temporary_beside(const fs::path& path) {
  static std::atomic<unsigned> count{0};
  fs::path result = path;
  result += fmt::format(".tmp-{}-{}", ::getpid(), count++);
  return result;
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

struct stat status_of(int descriptor, const fs::path& path) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) fail_run(path, "reading its size");
  return status;
}

// Where the folder will stand: symbolic links resolved, no slash at the end.
fs::path checked_target(const fs::path& path) {
  std::error_code error;
  require(!path.empty(), "out: folder must have a name, got none");
  fs::path target = fs::weakly_canonical(path, error);
  require(!error, "out: folder must be reachable, got {} ({})", shown(path), error.message());
  if (!target.has_filename()) target = target.parent_path();

  if (fs::exists(fs::symlink_status(target, error))) {
    require(fs::is_directory(target, error), "out: must be a folder, got the file {}", shown(path));
    const bool empty = fs::is_empty(target, error);
    require(!error, "out: folder must be readable, got {} ({})", shown(path), error.message());
    require(empty, "out: folder must be new or empty, got {}; choose another --out", shown(path));
  } else {
    require(fs::is_directory(folder_of(target), error),
            "out: parent of the folder must exist, got {}; create {} first", shown(path),
            shown(folder_of(target)));
  }
  return target;
}

struct RemovedUnlessKept {
  fs::path path;
  bool kept = false;
  ~RemovedUnlessKept() {
    std::error_code ignored;
    if (!kept) fs::remove_all(path, ignored);
  }
};

}  // namespace

std::string shown(const fs::path& path) { return printable(path.string()); }

fs::path absolute_path(const fs::path& path) {
  fs::path whole;
  if (path.empty()) return whole;
  for (const auto& part : fs::absolute(path))
    if (!part.empty() && part != ".") whole /= part;
  return whole;
}

void sync_path(const fs::path& path) {
  const Descriptor descriptor(open_to_read(path));
  if (descriptor < 0) fail_run(path, "flushing");
  before_file_change();
  // Some file systems cannot flush a folder and say EINVAL; there is nothing more to do then.
  if (retried([&] { return ::fsync(descriptor); }) != 0 && errno != EINVAL) {
    fail_run(path, "flushing");
  }
}

void sync_tree(const fs::path& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const auto type = entry.symlink_status().type();
    if (type == fs::file_type::regular || type == fs::file_type::directory) sync_path(entry.path());
  }
  sync_path(folder);
}

void move_folder(const fs::path& from, const fs::path& to) {
  before_file_change();
  if (::rename(from.c_str(), to.c_str()) != 0) fail_run(to, "renaming into place");
  sync_path(folder_of(to));
}

void create_folders(const fs::path& path, std::string_view subject) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return;
  const auto folder = absolute_path(path);
  create_folders(folder.parent_path(), subject);
  before_file_change();
  const int code = ::mkdir(folder.c_str(), 0777) == 0 ? 0 : errno;
  // Another process may have made it meanwhile.
  require(code == 0 || fs::is_directory(folder, ignored),
          "{}: folder must be creatable, got {} ({})", subject, shown(folder),
          reason(code == EEXIST ? ENOTDIR : code));
  sync_path(folder.parent_path());
}

void replace_link(const fs::path& path, const std::string& target) {
  const auto temporary = temporary_beside(path);
  before_file_change();
  if (::symlink(target.c_str(), temporary.c_str()) != 0) fail_run(path, "linking");
  before_file_change();
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail_run(path, "renaming into place");
  sync_path(folder_of(path));
}

void write_text(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void append_text(const fs::path& path, std::string_view text) {
  before_file_change();
  const Descriptor descriptor(retried(
      [&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666); }));
  if (descriptor < 0) fail_run(path, "writing");
  while (!text.empty()) {
    before_file_change();
    const ssize_t count = retried([&] { return ::write(descriptor, text.data(), text.size()); });
    if (count < 0) fail_run(path, "writing");
    text.remove_prefix(static_cast<size_t>(count));
  }
}

LockedFile::LockedFile(const fs::path& path, std::string_view subject) {
  before_file_change();
  // Open for writing: over NFS an exclusive lock asks for that.
  descriptor_ = retried([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666); });
  if (descriptor_ < 0) fail_to_create(path);
  if (retried([&] { return ::flock(descriptor_, LOCK_EX | LOCK_NB); }) == 0) return;
  const int code = errno;
  ::close(descriptor_);
  require(code != EWOULDBLOCK, "{}: must not be in use by another process, got {} locked", subject,
          shown(path));
  fail_run(path, "locking", code);
}

LockedFile::~LockedFile() { ::close(descriptor_); }

void before_file_change() {
  static const int64_t kill_at = [] {
    const char* text = std::getenv("BMOJO_KILL_AT");
    return text == nullptr ? 0 : std::atoll(text);
  }();
  static std::atomic<int64_t> count{0};
  if (kill_at > 0 && ++count == kill_at) ::kill(::getpid(), SIGKILL);
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  // Without O_NONBLOCK, opening a pipe would wait for its writer.
  const Descriptor descriptor(open_to_read(path, O_NONBLOCK));
  require(descriptor >= 0, "{}: must be a readable file, got {}", shown(path), reason());
  const struct stat status = status_of(descriptor, path);
  require(S_ISREG(status.st_mode), "{}: must be a regular file, got {}", shown(path),
          S_ISDIR(status.st_mode) ? "a folder" : "a device or pipe");
  if (status.st_size == 0) return;

  // MAP_NORESERVE: a private writable mapping otherwise counts as memory, and a model larger than
  // the machine's would be refused although its pages are only read.
  const auto size = static_cast<size_t>(status.st_size);
  void* start =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0);
  if (start == MAP_FAILED) fail_run(path, "mapping");
  bytes_ = {static_cast<std::byte*>(start), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)) {
  std::error_code error;
  const auto status = fs::status(path_, error);
  // Found out here and not by the rename, after gigabytes have been written.
  require(!fs::exists(status) || fs::is_regular_file(status), "{}: must be a regular file, got {}",
          shown(path_), fs::is_directory(status) ? "a folder" : "a device or pipe");
  do {
    temporary_ = temporary_beside(path_);
    before_file_change();
    descriptor_ = retried(
        [&] { return ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) fail_to_create(path_);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  require(descriptor_ >= 0, "{}: must be written before commit, got more bytes", shown(path_));
  while (!bytes.empty()) {
    before_file_change();
    const ssize_t count = retried([&] { return ::write(descriptor_, bytes.data(), bytes.size()); });
    if (count < 0) fail_run(path_, "writing");
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void AtomicFile::overwrite(size_t offset, std::string_view text) {
  require(descriptor_ >= 0, "{}: must be written before commit, got more bytes", shown(path_));
  const auto size = static_cast<size_t>(status_of(descriptor_, path_).st_size);
  require(offset <= size && text.size() <= size - offset,
          "{}: overwrite must stay within the {} bytes written, got [{}, {})", shown(path_), size,
          offset, offset + text.size());
  while (!text.empty()) {
    before_file_change();
    const ssize_t count = retried([&] {
      return ::pwrite(descriptor_, text.data(), text.size(), static_cast<off_t>(offset));
    });
    if (count < 0) fail_run(path_, "writing");
    offset += static_cast<size_t>(count);
    text.remove_prefix(static_cast<size_t>(count));
  }
}

void AtomicFile::commit() {
  require(descriptor_ >= 0, "{}: must be committed once, got a second commit", shown(path_));
  before_file_change();
  if (retried([&] { return ::fsync(descriptor_); }) != 0) fail_run(path_, "flushing");
  // Linux frees the descriptor even where close() reports a failure: never close it twice.
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) fail_run(path_, "closing");
  before_file_change();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_run(path_, "renaming into place");
  temporary_.clear();
  sync_path(folder_of(path_));
}

void write_folder(const fs::path& path, const std::function<void(const fs::path& folder)>& fill) {
  const fs::path target = checked_target(path);
  fs::path name = temporary_beside(target);
  while (::mkdir(name.c_str(), 0777) != 0) {
    require(errno == EEXIST, "out: parent of the folder must be writable, got {} ({})", shown(path),
            reason());
    name = temporary_beside(target);
  }
  RemovedUnlessKept temporary{name};
  fill(temporary.path);
  try {
    sync_tree(temporary.path);
  } catch (const fs::filesystem_error& error) {
    fail_run(path, "flushing", error.code().value());
  }
  if (::rename(temporary.path.c_str(), target.c_str()) != 0) {
    require(errno != ENOTEMPTY && errno != EEXIST,
            "out: folder must be new or empty, got {}, filled meanwhile; choose another --out",
            shown(path));
    fail_run(path, "renaming into place");
  }
  temporary.kept = true;
  sync_path(folder_of(target));
}

std::string read_text(const fs::path& path, size_t limit) {
  const Descriptor descriptor(open_to_read(path));
  require(descriptor >= 0, "{}: must be a readable file, got {}", shown(path), reason());
  const struct stat status = status_of(descriptor, path);
  require(!S_ISDIR(status.st_mode), "{}: must be a file, got a folder", shown(path));

  // To the end and not to st_size: pipes have none. One byte of room tells the end from the limit.
  limit = std::min(limit, std::string().max_size() - 1);
  std::string text;
  size_t size = 0;
  while (true) {
    if (size == text.size()) {
      const auto expected = static_cast<size_t>(status.st_size);
      text.resize(std::min(limit, std::max(expected, 2 * size + 4096)) + 1);
    }
    const ssize_t count =
        retried([&] { return ::read(descriptor, text.data() + size, text.size() - size); });
    if (count < 0) fail_run(path, "reading");
    if (count == 0) break;
    size += static_cast<size_t>(count);
    require(size <= limit, "{}: must be at most {} bytes, got more", shown(path), limit);
  }
  text.resize(size);
  return text;
}

}  // namespace bmojo
