#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace bmojo::train {

// Notices a worker that falls silent. A process that ends closes its connections, but a machine
// that vanishes does not, and the others would wait for it for hours.
//
// Every worker counts up a number of its own in a store that all share, and watches the one of the
// worker after it and the store itself: whoever is lost, one other notices and ends, and the rest
// see that worker's connections close. A worker that computes, saves or validates for long still
// beats, in a thread of its own.
class Heartbeat {
 public:
  // Adds to a number of the store and returns it. May block for ever. May throw: then the store has
  // ended, with connections closed, which is noticed without us.
  using Add = std::function<int64_t(const std::string& key, int64_t amount)>;
  // Says who was lost. Called once at most, from another thread.
  using Lost = std::function<void(const std::string& who)>;
  struct Pace {
    std::chrono::milliseconds beat{1000}, silence{7000};
  };

  Heartbeat(int rank, int count, Add add, Lost lost, Pace pace);
  // Says goodbye: the silence that follows is no loss.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  void beat();
  void watch();
  void stop_watching();
  std::string key(int rank) const;

  int rank_, next_;
  Add add_;
  Lost lost_;
  Pace pace_;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  bool leaving_ = false, over_ = false;
  Clock::time_point store_heard_, next_heard_;
  std::thread beater_, watcher_;
};

}  // namespace bmojo::train
