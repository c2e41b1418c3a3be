// Counts allocations through operator new, which this file replaces for its whole program.
#include "bmojo/base/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <new>
#include <numeric>
#include <set>
#include <string>

#include "bmojo/base/error.h"

namespace {
std::atomic<int64_t> allocations = 0;
}  // namespace

void* operator new(size_t size) {
  ++allocations;
  void* start = std::malloc(size);
  if (start == nullptr) throw std::bad_alloc();
  return start;
}
void operator delete(void* start) noexcept { std::free(start); }
void operator delete(void* start, size_t) noexcept { std::free(start); }

namespace bmojo::base {
namespace {

using std::chrono::milliseconds;

int twice(int x) { return 2 * x; }

TEST(FunctionRef, CallsWhatItRefersTo) {
  int calls = 0;
  const auto counted = [&calls](int x) { return x + ++calls; };
  const FunctionRef<int(int)> lambda = counted, function = twice, copy = lambda;
  int (*const pointer)(int) = twice;
  const FunctionRef<int(int)> indirect = pointer;
  EXPECT_EQ(lambda(10), 11);
  EXPECT_EQ(copy(10), 12);
  EXPECT_EQ(function(4), 8);
  EXPECT_EQ(indirect(5), 10);
  struct Counter {
    int total = 0;
    void operator()(const std::string& text) { total += static_cast<int>(text.size()); }
  } counter;
  const FunctionRef<void(const std::string&)> changes = counter;
  changes("four");
  changes("seven");
  EXPECT_EQ(counter.total, 9);
}

// Returns once `count` tasks are in it at the same time: each has a thread of its own. A minute is
// far more than threads need to wake up.
class Meeting {
 public:
  explicit Meeting(int count) : count_(count) {}
  void attend() {
    ++present_;
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (present_ < count_ && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_GE(present_, count_);
  }

 private:
  const int count_;
  std::atomic<int> present_ = 0;
};

TEST(ThreadPool, RunsEachTaskOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t n : {0, 1, 2, 3, 100, 1000})
      for (int turn = 0; turn < 50; ++turn) {
        std::vector<int> count(static_cast<size_t>(n));
        pool.run(n, [&](int64_t i) { ++count[static_cast<size_t>(i)]; });
        ASSERT_EQ(count, std::vector<int>(static_cast<size_t>(n), 1)) << threads;
      }
  }
}

TEST(ThreadPool, UsesAllItsThreadsAwakeOrAsleep) {
  ThreadPool pool(4);
  for (const auto pause : {milliseconds(0), milliseconds(0), milliseconds(5), milliseconds(5)}) {
    std::this_thread::sleep_for(pause);  // the workers go to sleep, or they do not
    Meeting meeting(4);
    pool.run(4, [&](int64_t) { meeting.attend(); });
  }
}

TEST(ThreadPool, TheCallerWaitsForASlowWorker) {
  ThreadPool pool(2);
  Meeting meeting(2);
  const auto caller = std::this_thread::get_id();
  std::vector<int> done(2);
  pool.run(2, [&](int64_t i) {
    meeting.attend();
    if (std::this_thread::get_id() != caller) std::this_thread::sleep_for(milliseconds(5));
    done[static_cast<size_t>(i)] = 1;
  });
  EXPECT_EQ(done, (std::vector<int>{1, 1}));
}

TEST(ThreadPool, OneThreadIsTheCaller) {
  ThreadPool pool(1);
  pool.run(9, [caller = std::this_thread::get_id()](int64_t) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
  });
}

TEST(ThreadPool, NestedTasksRunOnTheThreadOfTheirTask) {
  ThreadPool pool(3), other(2);
  std::atomic<int64_t> sum = 0;
  pool.run(20, [&](int64_t) {
    for (auto* inner : {&pool, &other})
      inner->run(10, [&, thread = std::this_thread::get_id()](int64_t i) {
        EXPECT_EQ(std::this_thread::get_id(), thread);
        sum += i;
      });
  });
  EXPECT_EQ(sum, 20 * 2 * 45);
}

TEST(ThreadPool, ThrowsWhatATaskThrowsAndGoesOn) {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (const int64_t n : {1, 2, 300})
      for (int turn = 0; turn < 20; ++turn) {
        std::string message;
        try {
          pool.run(n, [&](int64_t i) {
            if (i == n / 2) fail("task: must not be {}", i);
          });
        } catch (const Error& error) {
          message = error.what();
        }
        ASSERT_EQ(message, fmt::format("task: must not be {}", n / 2));
        std::atomic<int64_t> count = 0;
        pool.run(n, [&](int64_t) { ++count; });
        ASSERT_EQ(count, n);
      }
  }
}

TEST(ThreadPool, LeavesOutWhatHasNotBegunWhenATaskThrows) {
  ThreadPool pool(2);
  std::atomic<int64_t> count = 0;
  EXPECT_THROW(pool.run(1'000'000'000'000,
                        [&](int64_t i) {
                          ++count;
                          if (i == 5) fail("task: fails");
                        }),
               Error);
  EXPECT_LT(count, 1'000'000'000'000);
}

TEST(ThreadPool, ManyCallersTakeTurns) {
  ThreadPool pool(3), other(2);
  std::vector<int64_t> sums(6);
  std::vector<std::thread> callers;
  for (size_t caller = 0; caller < sums.size(); ++caller)
    callers.emplace_back([&, caller] {
      for (int turn = 0; turn < 200; ++turn) {
        std::vector<int64_t> found(50);
        (caller % 2 == 0 ? pool : other).run(50, [&](int64_t i) {
          found[static_cast<size_t>(i)] = i;
        });
        sums[caller] += std::accumulate(found.begin(), found.end(), int64_t{0});
      }
    });
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(sums, std::vector<int64_t>(6, 200 * 1225));
}

TEST(ThreadPool, EndsWithoutAJob) {
  for (int turn = 0; turn < 20; ++turn) {
    ThreadPool pool(3);
    if (turn % 2 == 0) std::this_thread::sleep_for(milliseconds(1));
  }
}

TEST(ThreadPool, AJobAllocatesNothing) {
  ThreadPool pool(2);
  struct Large {
    std::array<int64_t, 64> numbers;
  } large = {};
  large.numbers.fill(1);
  std::atomic<int64_t> sum = 0;
  const int64_t before = allocations;
  for (int turn = 0; turn < 100; ++turn)
    pool.run(10, [large, &sum](int64_t i) { sum += large.numbers[static_cast<size_t>(i)]; });
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(sum, 1000);
}

TEST(ThreadPool, RefusesNoThreads) { EXPECT_THROW(ThreadPool(0), Error); }

}  // namespace
}  // namespace bmojo::base
