#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace bmojo::base {

// The caller's mistake: a flag, a config, a file. The command line prints it and exits 2.
// Messages read `subject: requirement, got value; remedy`.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The run failed through no fault of the caller: disk full, I/O error. The command line exits 1.
struct RunError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) fail(format, std::forward<Args>(args)...);
}

}  // namespace bmojo::base
