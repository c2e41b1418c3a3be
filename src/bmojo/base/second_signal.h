#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <ctime>

namespace bmojo::base {

// Tells a second Ctrl-C from an echo of the first: timeout(1) and others signal a process and then
// the group that it belongs to. A signal handler may use it.
class SecondSignal {
 public:
  static constexpr int64_t kEcho = 200;  // milliseconds

  // Whether such a signal was heard before.
  bool is_second(int signal, int64_t now = milliseconds()) {
    int64_t first = 0;
    if (heard_at_[static_cast<size_t>(signal)].compare_exchange_strong(first, now)) return false;
    return now - first > kEcho;
  }

  // The next one is a first one again.
  void forget(int signal) { heard_at_[static_cast<size_t>(signal)] = 0; }

 private:
  // Since the machine has started, and never 0.
  static int64_t milliseconds() {
    std::timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return 1 + int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  }

  std::array<std::atomic<int64_t>, 65> heard_at_{};  // by signal; 0: never
};

}  // namespace bmojo::base
