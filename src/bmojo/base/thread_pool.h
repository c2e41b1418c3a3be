#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "bmojo/base/function_ref.h"

namespace bmojo::base {

// Threads that wait for work: about 100 µs awake, for the next job of a sequence of short ones,
// then asleep. A job allocates nothing. Any number of threads may use a pool (they take turns).
class ThreadPool {
 public:
  using Task = FunctionRef<void(int64_t)>;

  // `threads` with the caller, who takes part in each job; 1 starts none.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // task(0) … task(n - 1), each once; a thread takes the next when it is done with one. Inside a
  // task of any pool, one after the other. When a task throws, those that have not begun are left
  // out and the first exception is thrown here.
  void run(int64_t n, const Task& task);
  // The same: a pool is a kernels::ParallelFor.
  void operator()(int64_t n, const Task& task) { run(n, task); }

 private:
  void work();
  bool enter();
  void take_tasks();
  void leave();
  template <typename Done>
  void wait_until(const Done& done);
  void wake();
  void stop();

  std::mutex turn_;  // of the thread whose job it is
  const Task* task_ = nullptr;
  int64_t n_ = 0;
  std::exception_ptr failure_;
  alignas(64) std::atomic<int64_t> next_ = 0;
  // Whether a job is open and the number of workers in it: a caller leaves when it is closed and
  // the last worker is out, without those who were late.
  alignas(64) std::atomic<uint32_t> state_ = 0;
  std::atomic<int> sleepers_ = 0;
  std::mutex mutex_;  // of sleep, and of failure_
  std::condition_variable changed_;
  std::vector<std::thread> workers_;
};

// As asked for, or one a core for 0.
int threads_of(int threads);

}  // namespace bmojo::base
