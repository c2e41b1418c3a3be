#pragma once

#include <cstdint>
#include <string_view>

namespace bmojo {

// A line of /proc/self/status in bytes: "VmRSS" now, "VmHWM" at its highest. 0 where it is missing.
int64_t process_memory(std::string_view line);

}  // namespace bmojo
