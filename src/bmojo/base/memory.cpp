#include "bmojo/base/memory.h"

#include <fstream>
#include <string>

namespace bmojo {

int64_t process_memory(std::string_view line) {
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key;) {
    int64_t kilobytes = 0;
    if (key.size() == line.size() + 1 && key.starts_with(line) && status >> kilobytes)
      return kilobytes * 1024;
    status.ignore(1 << 20, '\n');
  }
  return 0;
}

}  // namespace bmojo
