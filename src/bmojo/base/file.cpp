#include "bmojo/base/file.h"

#include <signal.h>
#include <sys/file.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <utility>
#include <vector>

#include "bmojo/base/descriptor.h"
#include "bmojo/base/file_change.h"
#include "bmojo/base/printable.h"

namespace bmojo::base {
namespace fs = std::filesystem;
namespace {

// Makes a call that changes the file system; -1 with errno where it fails.
template <typename Call>
auto changed(FileChange what, const fs::path& path, Call call) -> decltype(call()) {
  if (!before_file_change(what, path)) return -1;
  return retried(call);
}

int rename_path(const fs::path& from, const fs::path& to) {
  if (!before_file_change(FileChange::rename, from, to)) return -1;
  return ::rename(from.c_str(), to.c_str());
}

// A folder that cannot be written is the caller's mistake, a full disk is not.
bool is_no_mistake(int code) {
  return code == ENOSPC || code == EDQUOT || code == EIO || code == EMFILE || code == ENFILE;
}

[[noreturn]] void fail_to_create(const fs::path& path, int code = errno) {
  if (is_no_mistake(code)) fail_run(path, "creating", code);
  fail("{}: must be in a folder that can be written, got {}", shown(path), reason(code));
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// Temporary names are `path`.tmp-PROCESS-NUMBER. Numbers begin at the time, in microseconds, so
// that those of this process differ from those of earlier ones with its id.
constexpr std::string_view kTemporary = ".tmp-";
uint64_t first_number() {
  using std::chrono::microseconds;
  static const auto number =
      std::chrono::duration_cast<microseconds>(std::chrono::system_clock::now().time_since_epoch());
  return static_cast<uint64_t>(number.count());
}

// Whether nobody will go on with what has such a name, given what follows kTemporary. A process of
// another machine counts as dead: two of them cannot write one path side by side.
bool is_abandoned(std::string_view process_and_number) {
  pid_t process = 0;
  uint64_t number = 0;
  const char *begin = process_and_number.data(), *end = begin + process_and_number.size();
  const auto dash = std::from_chars(begin, end, process);
  if (dash.ec != std::errc() || dash.ptr == end || *dash.ptr != '-' || process <= 0) return false;
  const auto last = std::from_chars(dash.ptr + 1, end, number);
  if (last.ec != std::errc() || last.ptr != end) return false;
  if (process == ::getpid()) return number < first_number();
  return ::kill(process, 0) != 0 && errno == ESRCH;
}

// Removes what killed processes have left beside `path`. What cannot be removed is in nobody's way.
void remove_abandoned(const fs::path& path) {
  const auto start = path.filename().string().append(kTemporary);
  std::vector<fs::path> abandoned;
  std::error_code error;
  for (fs::directory_iterator entry(folder_of(path), error), end; !error && entry != end;
       entry.increment(error)) {
    const auto name = entry->path().filename().string();
    if (name.starts_with(start) && is_abandoned(std::string_view(name).substr(start.size())))
      abandoned.push_back(entry->path());
  }
  for (const auto& each : abandoned)
    if (before_file_change(FileChange::remove, each)) fs::remove_all(each, error);
}

// A name beside `path` that no other process or earlier call uses.
fs::path temporary_beside(const fs::path& path) {
  static std::atomic<uint64_t> next{first_number()};
  remove_abandoned(path);
  fs::path result = path;
  result += fmt::format("{}{}-{}", kTemporary, ::getpid(), next++);
  return result;
}

// To read what a mapped file has lost says so and ends the program; to write it does neither.
void read_through(std::span<const std::byte> bytes) {
  for (const auto& byte : bytes) *static_cast<const volatile std::byte*>(&byte);
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

// Flushes a folder and everything in it to the disk, what it holds first.
void sync_tree(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const auto type = entry.symlink_status().type();
    if (type == fs::file_type::directory) sync_tree(entry.path());
    if (type == fs::file_type::regular) sync_path(entry.path());
  }
  sync_path(folder);
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

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == name.npos;
}

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
  // Some file systems cannot flush a folder and say EINVAL; there is nothing more to do then.
  if (changed(FileChange::flush, path, [&] { return ::fsync(descriptor); }) != 0 && errno != EINVAL)
    fail_run(path, "flushing");
}

void remove_path(const fs::path& path) {
  std::error_code error;
  if (before_file_change(FileChange::remove, path))
    fs::remove_all(path, error);
  else
    error = std::error_code(errno, std::generic_category());
  if (error) fail_run(path, "removing", error.value());
}

void move_folder(const fs::path& from, const fs::path& to) {
  if (rename_path(from, to) != 0) fail_run(to, "renaming into place");
  sync_path(folder_of(to));
}

void create_folder(const fs::path& path) {
  const auto make = [&] { return ::mkdir(path.c_str(), 0777); };
  if (changed(FileChange::create, path, make) != 0) fail_run(path, "creating");
}

void create_folders(const fs::path& path, std::string_view subject) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return;
  const auto folder = absolute_path(path);
  create_folders(folder.parent_path(), subject);
  const auto make = [&] { return ::mkdir(folder.c_str(), 0777); };
  const int code = changed(FileChange::create, folder, make) == 0 ? 0 : errno;
  if (is_no_mistake(code)) fail_run(folder, "creating", code);
  // Another process may have made it meanwhile.
  require(code == 0 || fs::is_directory(folder, ignored),
          "{}: folder must be creatable, got {} ({})", subject, shown(folder),
          reason(code == EEXIST ? ENOTDIR : code));
  sync_path(folder.parent_path());
}

void replace_link(const fs::path& path, const std::string& target) {
  RemovedUnlessKept temporary{temporary_beside(path)};
  const auto link = [&] { return ::symlink(target.c_str(), temporary.path.c_str()); };
  if (changed(FileChange::create, temporary.path, link) != 0) fail_run(path, "linking");
  if (rename_path(temporary.path, path) != 0) fail_run(path, "renaming into place");
  temporary.kept = true;
  sync_path(folder_of(path));
}

void write_text(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void append_text(const fs::path& path, std::string_view text) {
  const Descriptor descriptor(changed(FileChange::create, path, [&] {
    return ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  }));
  if (descriptor < 0) fail_run(path, "writing");
  while (!text.empty()) {
    const ssize_t count = changed(FileChange::write, path,
                                  [&] { return ::write(descriptor, text.data(), text.size()); });
    if (count < 0) fail_run(path, "writing");
    text.remove_prefix(static_cast<size_t>(count));
  }
}

LockedFile::LockedFile(const fs::path& path, std::string_view subject) {
  // Open for writing: over NFS an exclusive lock asks for that.
  descriptor_ = changed(FileChange::create, path,
                        [&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666); });
  if (descriptor_ < 0) fail_to_create(path);
  if (retried([&] { return ::flock(descriptor_, LOCK_EX | LOCK_NB); }) == 0) return;
  const int code = errno;
  ::close(descriptor_);
  require(code != EWOULDBLOCK, "{}: must not be in use by another process, got {} locked", subject,
          shown(path));
  fail_run(path, "locking", code);
}

LockedFile::~LockedFile() { ::close(descriptor_); }

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)) {
  std::error_code error;
  const auto status = fs::status(path_, error);
  // Found out here and not by the rename, after gigabytes have been written.
  require(!fs::exists(status) || fs::is_regular_file(status), "{}: must be a regular file, got {}",
          shown(path_), fs::is_directory(status) ? "a folder" : "a device or pipe");
  do {
    temporary_ = temporary_beside(path_);
    descriptor_ = changed(FileChange::create, temporary_, [&] {
      return ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    });
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
    const ssize_t count = changed(FileChange::write, temporary_,
                                  [&] { return ::write(descriptor_, bytes.data(), bytes.size()); });
    const int code = errno;
    if (count < 0 && code == EFAULT) read_through(bytes);
    if (count < 0) fail_run(path_, "writing", code);
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
    const ssize_t count = changed(FileChange::write, temporary_, [&] {
      return ::pwrite(descriptor_, text.data(), text.size(), static_cast<off_t>(offset));
    });
    if (count < 0) fail_run(path_, "writing");
    offset += static_cast<size_t>(count);
    text.remove_prefix(static_cast<size_t>(count));
  }
}

void AtomicFile::commit() {
  require(descriptor_ >= 0, "{}: must be committed once, got a second commit", shown(path_));
  if (changed(FileChange::flush, temporary_, [&] { return ::fsync(descriptor_); }) != 0)
    fail_run(path_, "flushing");
  // Linux frees the descriptor even where close() reports a failure: never close it twice.
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) fail_run(path_, "closing");
  if (rename_path(temporary_, path_) != 0) fail_run(path_, "renaming into place");
  temporary_.clear();
  sync_path(folder_of(path_));
}

void write_folder(const fs::path& path, const std::function<void(const fs::path& folder)>& fill) {
  const fs::path target = checked_target(path);
  fs::path name = temporary_beside(target);
  const auto make = [&] { return ::mkdir(name.c_str(), 0777); };
  while (changed(FileChange::create, name, make) != 0) {
    if (is_no_mistake(errno)) fail_run(path, "creating");
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
  if (rename_path(temporary.path, target) != 0) {
    require(errno != ENOTEMPTY && errno != EEXIST,
            "out: folder must be new or empty, got {}, filled meanwhile; choose another --out",
            shown(path));
    fail_run(path, "renaming into place");
  }
  temporary.kept = true;
  sync_path(folder_of(target));
}

}  // namespace bmojo::base
