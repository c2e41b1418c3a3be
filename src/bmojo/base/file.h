#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace bmojo::base {

// A path in a message.
std::string shown(const std::filesystem::path& path);

// Absolute, without `.` and without a slash at the end. `..` stays: behind a link it leads
// elsewhere than its text says.
std::filesystem::path absolute_path(const std::filesystem::path& path);

// Whether a text is the name of something in a folder, and cannot lead out of it.
bool is_plain_name(std::string_view name);

// A file mapped privately: readable, and writable without ever reaching the disk.
class MappedFile {
 public:
  // Throws Error where the path is missing or not a regular file. An empty file maps to an empty
  // span.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }
  // All of it will be read: in large pages, where the system has them for files.
  void prefer_large_pages() const;

 private:
  std::filesystem::path path_;
  std::span<std::byte> bytes_;
};

// From here on a mapped file that is cut short, so that its bytes cannot be read any more, ends the
// program with one line and exit code 1. Any other SIGBUS does what it would have done.
void watch_mapped_files();

// A file that appears under its name only when whole: written beside it under a temporary name,
// then flushed to the disk and renamed by commit(). Without commit() nothing is left behind. What a
// process that was killed has left of the same file is removed, here and by write_folder() and
// replace_link().
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Throws RunError with the system's reason (disk full, …).
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  // Replaces bytes written earlier; the end of the file stays where it is.
  void overwrite(size_t offset, std::string_view text);
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
};

// Builds a folder under a temporary name beside `path`, then renames it into place. A folder that
// already exists and is not empty is refused before anything is written; when `fill` throws,
// nothing is left behind.
void write_folder(const std::filesystem::path& path,
                  const std::function<void(const std::filesystem::path& folder)>& fill);

// Makes a folder that is not there yet. RunError with the system's reason.
void create_folder(const std::filesystem::path& path);
// Makes a folder and those above it that are missing, and flushes the name of each to the disk.
// Error with `subject` where that cannot be.
void create_folders(const std::filesystem::path& path, std::string_view subject);
// Makes `path` a symbolic link to `target`, in place of whatever link was there.
void replace_link(const std::filesystem::path& path, const std::string& target);
// Removes a file, a link or a folder with all it holds, where it is there. RunError with the
// system's reason.
void remove_path(const std::filesystem::path& path);
// Renames a folder into place and flushes the folder it stands in.
void move_folder(const std::filesystem::path& from, const std::filesystem::path& to);

// Flushes a file, or a folder's list of names, to the disk.
void sync_path(const std::filesystem::path& path);
// Writes a small file whole or not at all.
void write_text(const std::filesystem::path& path, std::string_view text);
// Adds to the end of a file, which need not be there yet. RunError with the system's reason.
void append_text(const std::filesystem::path& path, std::string_view text);

// A file that no other process has locked, for as long as this lives; made where it is missing. It
// stays, locked by nobody: to remove it would let two others lock two files of one name.
class LockedFile {
 public:
  // Error with `subject` where another process holds it, RunError where it cannot be locked.
  LockedFile(const std::filesystem::path& path, std::string_view subject);
  ~LockedFile();
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace bmojo::base
