#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"

// Open files and what goes wrong with them, for the files of this room.

namespace bmojo::base {

inline std::string reason(int code = errno) { return std::generic_category().message(code); }

[[noreturn]] inline void fail_run(const std::filesystem::path& path, std::string_view action,
                                  int code = errno) {
  throw RunError(fmt::format("{}: {} failed: {}", shown(path), action, reason(code)));
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

inline int open_to_read(const std::filesystem::path& path, int flags = 0) {
  return retried([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags); });
}

inline struct stat status_of(int descriptor, const std::filesystem::path& path) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) fail_run(path, "reading its size");
  return status;
}

}  // namespace bmojo::base
