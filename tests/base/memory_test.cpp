#include "bmojo/base/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <limits>

#include "tests/temp_folder.h"

namespace bmojo::base {
namespace {

// proc and sys of a machine of its own.
struct Machine {
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((folder / path).parent_path());
    folder.write(path, text);
  }
  int64_t available() const { return available_memory(folder.path()); }
  test::TempFolder folder;
};

TEST(AvailableMemory, IsTheMachines) {
  const Machine machine;
  EXPECT_EQ(machine.available(), std::numeric_limits<int64_t>::max());
  machine.write("proc/meminfo", "MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable:    70 kB\n");
  EXPECT_EQ(machine.available(), 70 * 1024);
}

TEST(AvailableMemory, IsWhatTheStrictestGroupLeaves) {
  const Machine machine;
  machine.write("proc/meminfo", "MemAvailable: 70 kB\n");
  machine.write("proc/self/cgroup", "0::/a/b\n");
  machine.write("sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(machine.available(), 70 * 1024);
  machine.write("sys/fs/cgroup/a/memory.max", "50000\n");
  machine.write("sys/fs/cgroup/a/memory.current", "30000\n");
  EXPECT_EQ(machine.available(), 20000);
  // Cached files make room.
  machine.write("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 4000\nactive_file 500\n");
  EXPECT_EQ(machine.available(), 24500);
  machine.write("sys/fs/cgroup/memory.max", "10000\n");
  machine.write("sys/fs/cgroup/memory.current", "30000\n");
  EXPECT_EQ(machine.available(), 0);
}

TEST(AvailableMemory, KnowsTheOlderGroups) {
  const Machine machine;
  machine.write("proc/meminfo", "MemAvailable: 70 kB\n");
  machine.write("proc/self/cgroup", "5:cpu:/\n4:memory:/a\n0::/\n");
  machine.write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9000\n");
  machine.write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "8000\n");
  machine.write("sys/fs/cgroup/memory/a/memory.stat", "inactive_file 7\ntotal_inactive_file 100\n");
  EXPECT_EQ(machine.available(), 1100);
}

TEST(AvailableMemory, IsWithinTheAddressSpace) {
  const Machine machine;
  struct rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  auto less = before;
  constexpr int64_t kMore = 100 << 20;
  less.rlim_cur = static_cast<rlim_t>(process_memory("VmSize") + kMore);
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &less), 0);
  const auto available = machine.available();
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_LE(available, kMore);
  EXPECT_GT(available, kMore / 2);
}

TEST(AvailableMemory, IsSaidOfThisMachine) {
  EXPECT_GT(available_memory(), 1 << 20);
  EXPECT_GT(process_memory("VmRSS"), 1 << 20);
  EXPECT_EQ(process_memory("VmNone"), 0);
}

}  // namespace
}  // namespace bmojo::base
