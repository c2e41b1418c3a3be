#include "bmojo/base/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <string>

namespace bmojo::base {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

// The number behind a key ("VmRSS:", "inactive_file") at the start of a line; `otherwise` where
// there is none.
int64_t number_in(const fs::path& path, std::string_view key, int64_t otherwise) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    int64_t number = 0;
    if (word == key && file >> number) return number;
    file.ignore(1 << 20, '\n');
  }
  return otherwise;
}

// A file that is one number; "max", and whatever else is none, sets no limit.
int64_t number_of(const fs::path& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : kUnknown;
}

// The files of a control group, of version 2 and of version 1.
struct GroupNames {
  std::string_view folder, controller, limit, usage, cached[2];
};
constexpr std::array<GroupNames, 2> kGroups = {
    GroupNames{
        "sys/fs/cgroup", "", "memory.max", "memory.current", {"inactive_file", "active_file"}},
    GroupNames{"sys/fs/cgroup/memory",
               "memory",
               "memory.limit_in_bytes",
               "memory.usage_in_bytes",
               {"total_inactive_file", "total_active_file"}}};

// What one group leaves. Cached files count as used there, but make room.
int64_t left_in(const fs::path& folder, const GroupNames& names) {
  const int64_t limit = number_of(folder / names.limit);
  if (limit == kUnknown) return kUnknown;
  int64_t used = std::min(number_of(folder / names.usage), limit);
  for (const auto key : names.cached) used -= number_in(folder / "memory.stat", key, 0);
  return std::max<int64_t>(0, limit - std::max<int64_t>(0, used));
}

// Of the group of this process and those above it. Inside a container its path may lead nowhere;
// the one at the top is then its own.
int64_t left_in_groups(const fs::path& root) {
  int64_t left = kUnknown;
  std::ifstream list(root / "proc/self/cgroup");
  for (std::string line; std::getline(list, line);) {  // "4:memory:/a/b"
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos) continue;
    const auto controller = line.substr(first + 1, second - first - 1);
    for (const auto& names : kGroups) {
      if (controller != names.controller) continue;
      const fs::path top = root / names.folder;
      for (fs::path group = line.substr(second + 1); true; group = group.parent_path()) {
        left = std::min(left, left_in(top / group.relative_path(), names));
        if (group == group.parent_path()) break;
      }
    }
  }
  return left;
}

int64_t left_of_address_space() {
  struct rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnknown;
  return std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - process_memory("VmSize"));
}

}  // namespace

int64_t process_memory(std::string_view line) {
  return 1024 * number_in("/proc/self/status", std::string(line) + ":", 0);
}

int64_t available_memory(const fs::path& root) {
  const int64_t kilobytes = number_in(root / "proc/meminfo", "MemAvailable:", kUnknown / 1024);
  const int64_t machine = kilobytes == kUnknown / 1024 ? kUnknown : 1024 * kilobytes;
  return std::min({machine, left_in_groups(root), left_of_address_space()});
}

}  // namespace bmojo::base
