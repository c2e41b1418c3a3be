#pragma once

#include <cstdint>
#include <string_view>

namespace bmojo {

// A line of /proc/self/status in bytes: "VmRSS" now, "VmHWM" at its highest. 0 where it is missing.
int64_t process_memory(std::string_view line);

// What the heap holds at this moment, in bytes: allocated and not yet freed.
int64_t heap_in_use();

}  // namespace bmojo
