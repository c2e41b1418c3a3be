#include "bmojo/train/heartbeat.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <optional>
#include <stdexcept>

namespace bmojo::train {
namespace {

using namespace std::chrono_literals;

// A store in this process. It can fall silent or end.
class Store {
 public:
  Heartbeat::Add add() {
    return [this](const std::string& key, int64_t amount) {
      std::unique_lock lock(mutex_);
      if (has_ended_) throw std::runtime_error("connection closed");
      changed_.wait(lock, [&] { return !is_silent_; });
      return numbers_[key] += amount;
    };
  }
  void fall_silent(bool silent) {
    const std::lock_guard lock(mutex_);
    is_silent_ = silent;
    changed_.notify_all();
  }
  void end() {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
  }
  int64_t beats(int rank) {
    const std::lock_guard lock(mutex_);
    return numbers_["beat/" + std::to_string(rank)];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, int64_t> numbers_;
  bool is_silent_ = false, has_ended_ = false;
};

// Who was lost, as soon as somebody is.
class Losses {
 public:
  Heartbeat::Lost lost() {
    return [this](const std::string& who) {
      const std::lock_guard lock(mutex_);
      EXPECT_FALSE(who_) << "said twice";
      who_ = who;
      changed_.notify_all();
    };
  }
  std::string wait() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, 60s, [&] { return who_.has_value(); })) return "nobody";
    return *who_;
  }
  bool any() {
    const std::lock_guard lock(mutex_);
    return who_.has_value();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::string> who_;
};

constexpr Heartbeat::Pace kQuick{10ms, 200ms};

void wait_for_beats(Store& store, int rank, int64_t count) {
  const auto before = store.beats(rank);
  while (store.beats(rank) < before + count) std::this_thread::sleep_for(1ms);
}

TEST(Heartbeat, AWorkerThatFallsSilentIsLost) {
  Store store;
  Losses losses;
  auto other = std::make_unique<Heartbeat>(2, 3, store.add(), [](auto&) {}, kQuick);
  Heartbeat own(1, 3, store.add(), losses.lost(), kQuick);
  wait_for_beats(store, 1, 5);
  wait_for_beats(store, 2, 1);
  const auto last = store.beats(2);
  EXPECT_GT(last, 0);
  // Its goodbye is taken back: it is as if its machine had vanished.
  other.reset();
  store.add()("beat/2", last - store.beats(2));
  EXPECT_EQ(losses.wait(), "worker 2");
}

TEST(Heartbeat, OneThatNeverBeginsIsLost) {
  Store store;
  Losses losses;
  Heartbeat own(2, 3, store.add(), losses.lost(), kQuick);
  EXPECT_EQ(losses.wait(), "worker 0");
}

TEST(Heartbeat, OneThatSaysGoodbyeIsNot) {
  Store store;
  Losses losses;
  {
    const Heartbeat other(1, 2, store.add(), [](auto&) {}, kQuick);
  }
  const Heartbeat own(0, 2, store.add(), losses.lost(), kQuick);
  wait_for_beats(store, 0, 100);  // five times the silence that would be too long
  EXPECT_FALSE(losses.any());
}

TEST(Heartbeat, AStoreThatFallsSilentIsLost) {
  Store store;
  Losses losses;
  const Heartbeat own(0, 2, store.add(), losses.lost(), {10ms, 500ms});
  store.add()("beat/1", int64_t{1} << 41);  // the other has left
  wait_for_beats(store, 0, 3);
  store.fall_silent(true);
  EXPECT_EQ(losses.wait(), "the store of the workers");
  store.fall_silent(false);
}

TEST(Heartbeat, AStoreThatEndsIsNoticedElsewhere) {
  Store store;
  Losses losses;
  const Heartbeat own(0, 2, store.add(), losses.lost(), kQuick);
  store.end();
  std::this_thread::sleep_for(1s);
  EXPECT_FALSE(losses.any());
}

}  // namespace
}  // namespace bmojo::train
