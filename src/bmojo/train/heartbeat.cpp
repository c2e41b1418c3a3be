#include "bmojo/train/heartbeat.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

namespace bmojo::train {
namespace {

// A beat this large is the last one.
constexpr int64_t kGoodbye = int64_t{1} << 40;

}  // namespace

Heartbeat::Heartbeat(int rank, int count, Add add, Lost lost, Pace pace)
    : rank_(rank),
      next_((rank + 1) % count),
      add_(std::move(add)),
      lost_(std::move(lost)),
      pace_(pace),
      store_heard_(Clock::now()),
      next_heard_(store_heard_),
      watcher_([this] { watch(); }) {
  try {
    beater_ = std::thread([this] { beat(); });
  } catch (...) {  // a thread that is left running would end the process
    stop_watching();
    throw;
  }
}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  beater_.join();  // under the watcher's eyes: the store may be silent now
  stop_watching();
}

void Heartbeat::stop_watching() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  watcher_.join();
}

std::string Heartbeat::key(int rank) const { return fmt::format("beat/{}", rank); }

void Heartbeat::beat() try {
  int64_t last = -1;
  std::unique_lock lock(mutex_);
  while (!leaving_) {
    lock.unlock();
    add_(key(rank_), 1);
    const int64_t beats = add_(key(next_), 0);
    lock.lock();
    store_heard_ = Clock::now();
    if (beats != last) next_heard_ = store_heard_;
    if (beats >= kGoodbye) next_heard_ = Clock::time_point::max();
    last = beats;
    changed_.wait_for(lock, pace_.beat, [&] { return leaving_; });
  }
  lock.unlock();
  add_(key(rank_), kGoodbye);
} catch (const std::exception&) {
  const std::lock_guard lock(mutex_);
  over_ = true;
}

void Heartbeat::watch() {
  std::unique_lock lock(mutex_);
  auto before = Clock::now();
  while (!changed_.wait_for(lock, pace_.beat / 2, [&] { return over_; })) {
    const auto now = Clock::now();
    // Whoever was stopped or starved himself has heard nobody, which proves nothing.
    if (now - before > 2 * pace_.beat) {
      store_heard_ = now;
      if (next_heard_ != Clock::time_point::max()) next_heard_ = now;
    }
    before = now;
    const bool store_is_lost = now - store_heard_ > pace_.silence;
    if (!store_is_lost && now - next_heard_ <= pace_.silence) continue;
    lock.unlock();
    return lost_(store_is_lost ? "the store of the workers" : fmt::format("worker {}", next_));
  }
}

}  // namespace bmojo::train
