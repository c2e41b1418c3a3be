// Every worker here is a process of its own, forked from this one: so this process must never use
// torch, whose threads would not follow. `workers_test --worker WORD WORD FOLDER` is one of the
// copies that run_workers() makes, and does what the word of its rank says.
#include "bmojo/train/workers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bmojo/train/gradient_buckets.h"
#include "tests/temp_folder.h"

namespace bmojo::train {
namespace {

using test::begins;
using test::contains;
using test::message_of;
using test::TempFolder;

constexpr unsigned kDeadline = 60;  // seconds; a worker that hangs must end

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

[[noreturn]] void be_worker(const Place& place, const std::function<void(const Workers&)>& work) {
  ::alarm(kDeadline);
  int code = 1;
  try {
    work(Workers::join(place));
    code = testing::Test::HasFailure() ? 1 : 0;
  } catch (const std::exception& failure) {
    fmt::print(stderr, "worker {}: {}\n", place.rank, failure.what());
  }
  std::fflush(nullptr);
  ::_exit(code);
}

// The work done by `count` processes together: how each ended, as waitpid gives it.
std::vector<int> together(int count, const std::function<void(const Workers&)>& work) {
  const TempFolder folder;
  std::fflush(nullptr);
  std::vector<pid_t> processes;
  for (int rank = 0; rank < count; ++rank) {
    processes.push_back(::fork());
    if (processes.back() == 0)
      be_worker({rank, count, "file:" + (folder / "store").string()}, work);
  }
  std::vector<int> statuses;
  for (const auto process : processes) {
    statuses.push_back(-1);
    ::waitpid(process, &statuses.back(), 0);
  }
  EXPECT_EQ(folder.num_entries(), 0u);  // the store was removed when all had come
  return statuses;
}

at::Tensor random_values(int seed, at::IntArrayRef sizes) {
  torch::manual_seed(static_cast<uint64_t>(seed));
  return at::randn(sizes);
}

// Whether a tensor of 32 bit numbers is the same on all workers, to the bit.
bool is_the_same_everywhere(const Workers& workers, const at::Tensor& tensor) {
  const auto bits = tensor.contiguous().view(at::kInt).to(at::kLong);
  auto total = bits.clone();
  workers.sum(total);
  // Numbers that differ may still add up to count() times one's own, but not on every worker.
  const double differs = total.equal(bits * workers.count()) ? 0 : 1;
  return workers.max(differs) == 0;
}

TEST(Workers, TwoAddUpAsOneWouldToTheBit) {
  const auto statuses = together(2, [](const Workers& workers) {
    EXPECT_EQ(workers.count(), 2);
    EXPECT_EQ(workers.first(), workers.rank() == 0);
    for (const int64_t size : {1, 2, 3, 1000, 300001})
      for (int repeat = 0; repeat < 3; ++repeat) {
        auto tensor = random_values(workers.rank(), size);
        workers.sum(tensor);
        EXPECT_TRUE(tensor.equal(random_values(0, size) + random_values(1, size))) << size;
      }
    auto columns = random_values(workers.rank(), {3, 4}).t();
    ASSERT_FALSE(columns.is_contiguous());
    workers.sum(columns);
    EXPECT_TRUE(columns.equal((random_values(0, {3, 4}) + random_values(1, {3, 4})).t()));

    const double mine = workers.rank() + 1;
    EXPECT_EQ(workers.sum({mine, 10 * mine, 0.1}), (std::vector<double>{3, 30, 0.2}));
    EXPECT_EQ(workers.max(mine), 2);
    EXPECT_EQ(workers.max(-mine), -1);
    EXPECT_EQ(workers.max(workers.first() ? NAN : 1.0), INFINITY);
    workers.barrier();

    auto one = at::full({5}, mine), two = at::full({7}, 2 * mine);
    const auto first = workers.start_sum(one), second = workers.start_sum(two);
    second->wait();
    first->wait();
    EXPECT_TRUE(one.equal(at::full({5}, 3.0f)) && two.equal(at::full({7}, 6.0f)));
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0}));
}

TEST(Workers, ThreeGetTheSameBitsEveryTime) {
  const auto statuses = together(3, [](const Workers& workers) {
    for (const int64_t size : {1, 5, 100003}) {
      at::Tensor before;
      for (int repeat = 0; repeat < 3; ++repeat) {
        auto tensor = random_values(workers.rank(), size);
        workers.sum(tensor);
        EXPECT_TRUE(is_the_same_everywhere(workers, tensor)) << size;
        EXPECT_TRUE(repeat == 0 || tensor.equal(before)) << size;
        before = tensor;
      }
      const auto in_order =
          random_values(0, size) + random_values(1, size) + random_values(2, size);
      EXPECT_TRUE(before.allclose(in_order, 1e-5, 1e-5)) << size;
    }
    EXPECT_FALSE(is_the_same_everywhere(workers, at::full({2}, float(workers.rank()))));
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0, 0}));
}

TEST(Workers, AloneNothingChanges) {
  const auto statuses = together(1, [](const Workers& joined) {
    for (const auto& workers : {joined, Workers()}) {
      EXPECT_TRUE(workers.first() && workers.count() == 1);
      auto tensor = at::ones({3});
      workers.sum(tensor);
      workers.start_sum(tensor)->wait();
      EXPECT_TRUE(tensor.equal(at::ones({3})));
      EXPECT_EQ(workers.sum({1, 2}), (std::vector<double>{1, 2}));
      EXPECT_EQ(workers.max(-3), -3);
      workers.barrier();
      auto weight = at::ones({3}).requires_grad_(true);
      GradientBuckets buckets(workers, {weight});
      buckets.arm();
      weight.sum().backward();
      buckets.finish();
      EXPECT_TRUE(weight.grad().equal(at::ones({3})));
    }
  });
  EXPECT_EQ(statuses, (std::vector<int>{0}));
}

TEST(Workers, OneThatDiesIsNoticed) {
  const auto statuses = together(2, [](const Workers& workers) {
    workers.barrier();
    if (!workers.first()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      ::raise(SIGKILL);
    }
    // The first is lost in the middle, the others before they begin.
    for (int repeat = 0; repeat < 3; ++repeat) {
      const Stopwatch watch;
      const auto message = message_of<base::RunError>([&] { workers.barrier(); });
      EXPECT_TRUE(begins(message, "worker 0 of 2: lost another worker (")) << repeat;
      EXPECT_LT(watch.seconds(), 5);
    }
    const auto pending = workers.start_sum(at::ones({3}));
    EXPECT_THROW(pending->wait(), LostWorker);
  });
  EXPECT_EQ(statuses[0], 0);
  EXPECT_TRUE(WIFSIGNALED(statuses[1]) && WTERMSIG(statuses[1]) == SIGKILL);
}

TEST(Workers, WrongPlacesAreRefused) {
  const auto join = [](const Place& place) {
    return message_of<base::Error>([&] { Workers::join(place); });
  };
  EXPECT_TRUE(contains(join({2, 2, "file:x"}), "rank must be from 0 to 1, got 2"));
  for (const char* store : {"", "host", "host:", "host:x", "host:70000", ":80"})
    EXPECT_TRUE(contains(join({0, 2, store}), "must be file:PATH or HOST:PORT")) << store;
}

// Two linear maps; `sometimes` takes part where it is asked for, `unused` never.
struct Net {
  at::Tensor unused = at::ones({3}), sometimes = random_values(1, 4), in = random_values(2, {6, 4}),
             bias = random_values(3, 4), out = random_values(4, {4, 100});

  Net() {
    for (auto& parameter : parameters()) parameter.requires_grad_(true);
  }
  std::vector<at::Tensor> parameters() const { return {unused, sometimes, in, bias, out}; }
  at::Tensor loss(const at::Tensor& x, bool with_sometimes) const {  // x: [rows, 6]
    const auto hidden = at::tanh(x.mm(in) + bias);
    const auto loss = hidden.mm(out).square().sum();
    return with_sometimes ? loss + (hidden * sometimes).sum() : loss;
  }
};

// In buckets of 120 bytes: `out`, larger by itself; `bias` and `in`; `sometimes` and `unused`.
TEST(GradientBuckets, AreThoseOfOneProcess) {
  const auto statuses = together(2, [](const Workers& workers) {
    const Net net, whole;
    GradientBuckets buckets(workers, net.parameters(), 120);
    EXPECT_EQ(buckets.num_buckets(), 3u);
    for (int round = 0; round < 2; ++round) {
      const auto rows = random_values(10 + round, {8, 6});
      for (const auto& parameter : whole.parameters()) parameter.mutable_grad().reset();
      (whole.loss(rows.narrow(0, 0, 4), false) + whole.loss(rows.narrow(0, 4, 4), true)).backward();

      for (const auto& parameter : net.parameters()) parameter.mutable_grad().reset();
      for (int64_t micro = 0; micro < 2; ++micro) {
        if (micro == 1) buckets.arm();
        const auto part = rows.narrow(0, 4 * workers.rank() + 2 * micro, 2);
        net.loss(part, !workers.first()).backward();
      }
      buckets.finish();
      EXPECT_EQ(buckets.num_overlapped(), 2u);

      EXPECT_FALSE(net.unused.grad().defined());
      for (size_t i = 1; i < 5; ++i) {
        const auto got = net.parameters()[i].grad(), expected = whole.parameters()[i].grad();
        ASSERT_TRUE(got.defined()) << i;
        // fp32: eight rows in another order.
        const auto error = (got - expected).abs().max() / expected.abs().max();
        EXPECT_LE(error.item<double>(), 1e-6) << i;
        EXPECT_TRUE(is_the_same_everywhere(workers, got)) << i;
      }
    }
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0}));
}

TEST(GradientBuckets, ASecondBackwardPassIsRefused) {
  const auto statuses = together(2, [](const Workers& workers) {
    const Net net;
    const auto x = random_values(5, {2, 6});
    {
      GradientBuckets buckets(workers, net.parameters());
      EXPECT_EQ(buckets.num_buckets(), 1u);
      EXPECT_THROW(buckets.finish(), std::logic_error);
      buckets.arm();
      EXPECT_THROW(buckets.arm(), std::logic_error);
      net.loss(x, true).backward();
      const auto message = message_of<std::exception>([&] { net.loss(x, true).backward(); });
      EXPECT_TRUE(contains(message, "a second backward pass"));
      buckets.finish();
      EXPECT_EQ(buckets.num_overlapped(), 0u);  // `unused` keeps the only one waiting
    }
    net.loss(x, true).backward();  // no hook is left
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0}));
}

struct Launched {
  int status = 0;  // as waitpid gives it
  std::string errors;
  double seconds = 0;

  int code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : -1; }
};

bool is_running(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  if (!std::getline(file, text)) return false;
  return text.substr(text.rfind(')') + 2, 1) != "Z";
}

template <typename Condition>
bool soon(Condition condition) {
  for (const Stopwatch watch; watch.seconds() < 20;) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// run_workers() in a process of its own, over two workers that do as their words say. A signal is
// sent when both have begun to wait.
Launched launch(const TempFolder& folder, std::string first, std::string second, int signal = 0) {
  const Stopwatch watch;
  const auto errors = folder / "errors";
  std::fflush(nullptr);
  const pid_t process = ::fork();
  if (process == 0) {
    ::alarm(kDeadline);
    ::setenv("TMPDIR", folder.path().c_str(), 1);
    ::dup2(::open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    std::string program = "workers_test", flag = "--worker", path = folder.path().string();
    char* words[] = {program.data(), flag.data(), first.data(), second.data(), path.data()};
    try {
      ::_exit(run_workers(2, 1, 5, words));
    } catch (const std::exception&) {
      ::_exit(99);
    }
  }
  Launched launched;
  if (signal != 0) {
    const auto waits = [&](const char* name) { return std::filesystem::exists(folder / name); };
    EXPECT_TRUE(soon([&] { return waits("waits-0") && waits("waits-1"); }));
    ::kill(process, signal);
  }
  ::waitpid(process, &launched.status, 0);
  launched.seconds = watch.seconds();
  std::stringstream text;
  text << std::ifstream(errors).rdbuf();
  launched.errors = text.str();
  return launched;
}

// What two workers take to start and to end, on this machine now.
double seconds_of_starting(const TempFolder& folder) {
  return launch(folder, "done", "done").seconds;
}

TEST(Launch, OneLineSaysWhatEndedTheRun) {
  const TempFolder folder;
  const double starting = seconds_of_starting(folder);
  const struct {
    const char *first, *second;
    int code;
    const char* errors;
  } cases[] = {
      {"done", "done", 0, ""},
      {"loses", "dies", 1, "bmojo: worker 1 of 2 was lost (signal 9); the last checkpoint stays\n"},
      {"dies", "loses", 1, "bmojo: worker 0 of 2 was lost (signal 9); the last checkpoint stays\n"},
      {"mistake", "mistake", 2, "bmojo: --lr: wrong\n"},
      {"mistake", "sleeps", 2, "bmojo: --lr: wrong\n"},
      {"sleeps", "mistake", 2, "bmojo: worker 1 of 2: --lr: wrong\n"},
      {"fails", "loses", 1, "bmojo: disk full\n"},
      {"loses", "warns", 1, "bmojo: worker 1 of 2: disk full\n"},
      {"done", "loses", 1, "bmojo: worker 1 of 2 lost the others; the last checkpoint stays\n"},
      {"done", "says nothing", 1,
       "bmojo: worker 1 of 2 was lost (exit code 7); the last checkpoint stays\n"},
  };
  for (const auto& each : cases) {
    const auto launched = launch(folder, each.first, each.second);
    EXPECT_EQ(launched.code(), each.code) << each.first << ' ' << each.second;
    EXPECT_EQ(launched.errors, each.errors) << each.first << ' ' << each.second;
    EXPECT_LT(launched.seconds, 5 + 3 * starting);
  }
}

TEST(Launch, OneThatWillNotEndIsKilledWithin10Seconds) {
  const TempFolder folder;
  const double starting = seconds_of_starting(folder);
  const auto launched = launch(folder, "stubborn", "dies");
  EXPECT_EQ(launched.code(), 1);
  EXPECT_TRUE(contains(launched.errors, "worker 1 of 2 was lost (signal 9)"));
  EXPECT_GT(launched.seconds, 5);  // it had time to save
  EXPECT_LT(launched.seconds, 10 + 3 * starting);
}

TEST(Launch, SignalsReachAllAndNoneOutlivesItsParent) {
  const TempFolder folder;
  const auto interrupted = launch(folder, "waits", "waits", SIGTERM);
  EXPECT_EQ(interrupted.code(), 130);
  EXPECT_EQ(interrupted.errors, "");

  for (const char* name : {"waits-0", "waits-1"}) std::filesystem::remove(folder / name);
  const auto killed = launch(folder, "waits", "waits", SIGKILL);
  EXPECT_TRUE(WIFSIGNALED(killed.status));
  for (const char* name : {"waits-0", "waits-1"}) {
    pid_t process = 0;
    std::ifstream(folder / name) >> process;
    ASSERT_GT(process, 0);
    EXPECT_TRUE(soon([&] { return !is_running(process); })) << name;
  }
}

void set_environment(const std::vector<std::pair<const char*, const char*>>& entries) {
  for (const char* name : {"BMOJO_RANK", "BMOJO_WORKERS", "BMOJO_STORE", "RANK", "WORLD_SIZE",
                           "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"})
    ::unsetenv(name);
  for (const auto& [name, value] : entries) ::setenv(name, value, 1);
}

TEST(Launch, ThePlaceComesFromTheEnvironment) {
  set_environment({{"RANK", "1"}});
  EXPECT_FALSE(place_from_environment());

  const std::vector<std::pair<const char*, const char*>> torchrun = {
      {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a.b"}, {"MASTER_PORT", "29500"}};
  set_environment(torchrun);
  auto place = place_from_environment();
  ASSERT_TRUE(place);
  EXPECT_TRUE(place->rank == 1 && place->count == 4 && place->store == "a.b:29500");
  EXPECT_FALSE(place->store_is_served);
  ::setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  EXPECT_TRUE(place_from_environment()->store_is_served);

  // Ours goes before torchrun's.
  ::setenv("BMOJO_RANK", "0", 1);
  ::setenv("BMOJO_WORKERS", "2", 1);
  ::setenv("BMOJO_STORE", "file:/x", 1);
  place = place_from_environment();
  EXPECT_TRUE(place->rank == 0 && place->count == 2 && place->store == "file:/x");
  ::setenv("BMOJO_RANK", "2", 1);
  EXPECT_EQ(message_of<base::Error>(place_from_environment),
            "BMOJO_RANK: must be a whole number from 0 to 1, got '2'");

  set_environment({{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  EXPECT_TRUE(begins(message_of<base::Error>(place_from_environment), "MASTER_ADDR: must be set"));
  set_environment({{"RANK", "0"}, {"WORLD_SIZE", "two"}});
  EXPECT_TRUE(
      contains(message_of<base::Error>(place_from_environment), "WORLD_SIZE: must be a whole"));
  set_environment({});
}

[[noreturn]] void sleep_for_ever() {
  while (true) ::pause();
}

// Waits for SIGTERM and ends as one that has saved.
int wait_for_a_signal(const std::filesystem::path& folder, int rank) {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  const auto part = folder / fmt::format("part-{}", rank);  // no other worker's
  std::ofstream(part) << ::getpid();
  std::filesystem::rename(part, folder / fmt::format("waits-{}", rank));
  int signal = 0;
  ::sigwait(&set, &signal);
  return 130;
}

int as_the_word_says(std::string_view word, const std::filesystem::path& folder, int rank) {
  ::alarm(kDeadline);
  if (word == "dies") ::raise(SIGKILL);
  if (word == "loses") as_worker([] { throw LostWorker("worker: lost"); });
  if (word == "mistake") return std::fputs("bmojo: --lr: wrong\n", stderr) < 0 ? 9 : 2;
  if (word == "warns") std::fputs("a warning\n", stderr);
  if (word == "fails" || word == "warns")
    return std::fputs("bmojo: disk full\n", stderr) < 0 ? 9 : 1;
  if (word == "says nothing") return 7;
  if (word == "waits") return wait_for_a_signal(folder, rank);
  if (word == "stubborn") ::signal(SIGTERM, SIG_IGN);
  if (word == "stubborn" || word == "sleeps") sleep_for_ever();
  return word == "done" ? 0 : 9;
}

}  // namespace
}  // namespace bmojo::train

int main(int argc, char** argv) {
  if (argc == 5 && std::string_view(argv[1]) == "--worker") {
    const int rank = bmojo::train::place_from_environment()->rank;
    return bmojo::train::as_the_word_says(argv[2 + rank], argv[4], rank);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
