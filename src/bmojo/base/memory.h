#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace bmojo::base {

// A line of /proc/self/status in bytes: "VmRSS" now, "VmHWM" at its highest. 0 where it is missing.
int64_t process_memory(std::string_view line);

// Bytes that this process may still take without swapping: the least of what the machine has
// available, of what the limits of its control groups leave and of its address space. INT64_MAX
// where nothing says. `root`: where proc and sys are.
int64_t available_memory(const std::filesystem::path& root = "/");

}  // namespace bmojo::base
