#include "bmojo/base/thread_pool.h"

#include <chrono>

#include "bmojo/base/error.h"

namespace bmojo::base {
namespace {

constexpr auto kAwake = std::chrono::microseconds(100);

// Bits of the state above the number of workers.
constexpr uint32_t kOpen = 1u << 31, kStop = 1u << 30;

// A task that asked its own pool for threads would wait for itself, and two pools could wait for
// each other.
thread_local bool in_task = false;

template <typename Done>
bool spin_until(const Done& done) {
  const auto end = std::chrono::steady_clock::now() + kAwake;
  do {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      __builtin_ia32_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  require(threads >= 1 && threads <= 4096, "threads: must be from 1 to 4096, got {}", threads);
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  state_ |= kStop;
  wake();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::run(int64_t n, const Task& task) {
  if (in_task || workers_.empty() || n <= 1) {
    for (int64_t i = 0; i < n; ++i) task(i);
    return;
  }
  const std::lock_guard turn(turn_);
  task_ = &task;
  n_ = n;
  next_ = 0;
  state_ = kOpen;
  wake();
  in_task = true;
  take_tasks();
  in_task = false;
  wait_until([this] { return state_ == 0; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::work() {
  in_task = true;
  while (enter()) {
    take_tasks();
    leave();
  }
}

// Into the next job that is open; false when there will be none.
bool ThreadPool::enter() {
  for (;;) {
    wait_until([this] { return (state_ & (kOpen | kStop)) != 0; });
    uint32_t now = state_;
    if (now & kStop) return false;
    if (now & kOpen && state_.compare_exchange_strong(now, now + 1)) return true;
  }
}

// Who finds no task left closes the job.
void ThreadPool::take_tasks() {
  try {
    for (int64_t i = next_++; i < n_; i = next_++) (*task_)(i);
  } catch (...) {
    next_ = n_;
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
  state_ &= ~kOpen;
}

void ThreadPool::leave() {
  if (--state_ == 0) wake();
}

// Whoever makes `done` true calls wake() after it. No wake is lost: either it sees the sleeper, or
// the sleeper, who counts itself before it looks, sees what was done (both are sequentially
// consistent).
template <typename Done>
void ThreadPool::wait_until(const Done& done) {
  if (spin_until(done)) return;
  std::unique_lock lock(mutex_);
  ++sleepers_;
  changed_.wait(lock, done);
  --sleepers_;
}

void ThreadPool::wake() {
  if (sleepers_ == 0) return;
  // A sleeper that has looked but does not wait yet holds the mutex.
  {
    const std::lock_guard lock(mutex_);
  }
  changed_.notify_all();
}

int threads_of(int threads) {
  return threads > 0 ? threads
                     : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace bmojo::base
