#include <sys/mman.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <tuple>

#include "bmojo/base/descriptor.h"
#include "bmojo/base/file.h"

namespace bmojo::base {
namespace fs = std::filesystem;
namespace {

// Where a mapped file lies, and what to say when it cannot be read there any more.
struct Slot {
  std::atomic<uintptr_t> start{0};  // 0: free. Set last and cleared first
  std::atomic<uintptr_t> end{0};
  std::atomic<char*> line{nullptr};
};

// As many as Linux maps for a process unless it is told otherwise. The handler of SIGBUS reads them
// without the lock that they are written under.
Slot slots[65'536];
std::mutex slots_lock;

void watch(std::span<const std::byte> bytes, const fs::path& path) {
  const auto line = fmt::format(
      "bmojo: {}: reading failed: the file was cut short while in use, or its disk has failed\n",
      shown(path));
  const auto start = reinterpret_cast<uintptr_t>(bytes.data());
  const std::lock_guard lock(slots_lock);
  for (auto& slot : slots) {
    if (slot.start != 0) continue;
    slot.line = ::strdup(line.c_str());
    slot.end = start + bytes.size();
    slot.start = start;
    return;
  }
}

void unwatch(std::span<const std::byte> bytes) {
  const std::lock_guard lock(slots_lock);
  for (auto& slot : slots) {
    if (slot.start != reinterpret_cast<uintptr_t>(bytes.data())) continue;
    slot.start = 0;
    std::free(slot.line);
    return;
  }
}

// Only what a signal handler may do.
void on_bus_error(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const auto& slot : slots) {
    const auto start = slot.start.load();
    const bool is_sent = info->si_code <= 0;  // by a process: there is no address
    if (is_sent || start == 0 || address < start || address >= slot.end.load()) continue;
    static std::atomic_flag is_said = ATOMIC_FLAG_INIT;
    while (is_said.test_and_set()) ::pause();  // another thread says it and ends the process
    const char* line = slot.line.load();
    std::ignore = ::write(STDERR_FILENO, line, std::strlen(line));
    ::_exit(1);
  }
  // Not ours: what would have happened without us.
  std::signal(SIGBUS, SIG_DFL);
  std::raise(SIGBUS);
}

}  // namespace

void watch_mapped_files() {
  struct sigaction action{};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  // Without O_NONBLOCK, opening a pipe would wait for its writer.
  const Descriptor descriptor(open_to_read(path, O_NONBLOCK));
  require(descriptor >= 0, "{}: cannot be read: {}", shown(path), reason());
  const struct stat status = status_of(descriptor, path);
  require(S_ISREG(status.st_mode), "{}: must be a regular file, got {}", shown(path),
          S_ISDIR(status.st_mode) ? "a folder" : "a device or pipe");
  if (status.st_size == 0) return;

  // MAP_NORESERVE: a private writable mapping otherwise counts as memory, and a model larger than
  // the machine's would be refused although its pages are only read.
  const auto size = static_cast<size_t>(status.st_size);
  void* start =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0);
  if (start == MAP_FAILED) fail_run(path, "mapping");
  bytes_ = {static_cast<std::byte*>(start), size};
  watch(bytes_, path);
}

void MappedFile::prefer_large_pages() const {
  if (!bytes_.empty()) ::madvise(bytes_.data(), bytes_.size(), MADV_HUGEPAGE);
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  unwatch(bytes_);
  ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace bmojo::base
