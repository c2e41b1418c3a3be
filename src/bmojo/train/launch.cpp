#include "bmojo/train/launch.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "bmojo/base/last_line.h"
#include "bmojo/base/printable.h"
#include "bmojo/base/progress.h"
#include "bmojo/base/second_signal.h"
#include "bmojo/train/recipe.h"

namespace bmojo::train {
namespace {
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr const char *kRank = "BMOJO_RANK", *kCount = "BMOJO_WORKERS", *kStore = "BMOJO_STORE";
constexpr const char* kThreads = "OMP_NUM_THREADS";  // torch would start a thread a core
// Exit codes of the command line, and one between a worker and run_workers().
constexpr int kFailed = 1, kMistake = 2, kLost = 3, kInterrupted = 130;
// After a failure the others may end by themselves, then are asked to, then are killed. A caller's
// mistake is found before there is anything to save.
constexpr seconds kGrace{5}, kGraceOfMistake{1}, kGraceOfSignal{2};

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

int number(const char* name, int least, int most) {
  const std::string text = variable(name).value_or("");
  const char* end = text.data() + text.size();
  int value = 0;
  const auto [last, error] = std::from_chars(text.data(), end, value);
  base::require(error == std::errc() && last == end && value >= least && value <= most,
                "{}: must be a whole number from {} to {}, got {}", name, least, most,
                base::in_quotes(text));
  return value;
}

std::string text(const char* name) {
  const auto value = variable(name);
  base::require(value.has_value(), "{}: must be set for one of several workers, got nothing", name);
  return *value;
}

// Where the workers of one machine meet: empty at first, and removed by them when all have come.
class MeetingPlace {
 public:
  MeetingPlace() : path_((fs::temp_directory_path() / "bmojo-XXXXXX").string()) {
    const int descriptor = ::mkostemp(path_.data(), O_CLOEXEC);
    if (descriptor < 0)
      throw base::RunError(fmt::format("{}: cannot be made: {}", path_, std::strerror(errno)));
    ::close(descriptor);
  }
  ~MeetingPlace() { ::unlink(path_.c_str()); }
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Signals that wait to be asked for, so that none is lost between two looks.
class HeldSignals {
 public:
  HeldSignals() {
    ::sigemptyset(&held_);
    for (const int each : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&held_, each);
    // A process may be started with SIGCHLD ignored: how children end would then be forgotten.
    ::signal(SIGCHLD, SIG_DFL);
    ::pthread_sigmask(SIG_BLOCK, &held_, &before_);
  }
  ~HeldSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  // The next one; 0 when none came for a fifth of a second.
  int next() const {
    const timespec patience{0, 200'000'000};
    return std::max(::sigtimedwait(&held_, nullptr, &patience), 0);
  }
  const sigset_t& before() const { return before_; }

 private:
  sigset_t held_{}, before_{};
};

// Ours, with the variables of a worker.
std::vector<std::string> environment_of(const Place& place, int threads) {
  std::vector<std::string> entries = {
      fmt::format("{}={}", kRank, place.rank), fmt::format("{}={}", kCount, place.count),
      fmt::format("{}={}", kStore, place.store), fmt::format("{}={}", kThreads, threads)};
  const auto is_replaced = [](std::string_view entry) {
    const auto name = entry.substr(0, entry.find('='));
    return name == kRank || name == kCount || name == kStore || name == kThreads;
  };
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!is_replaced(*entry)) entries.emplace_back(*entry);
  return entries;
}

// The last line written to a file, without "bmojo: "; empty where there is none.
std::string last_message(int descriptor) {
  constexpr off_t kMost = 4096;
  struct stat status{};
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0) return "";
  const off_t start = std::max<off_t>(status.st_size - kMost, 0);
  std::string tail(static_cast<size_t>(status.st_size - start), '\0');
  const auto length = ::pread(descriptor, tail.data(), tail.size(), start);
  tail.resize(static_cast<size_t>(std::max<ssize_t>(length, 0)));
  auto line = base::last_line(tail);
  constexpr std::string_view kPrefix = "bmojo: ";
  if (line.starts_with(kPrefix)) line.remove_prefix(kPrefix.size());
  return base::printable(line);
}

// Nothing where a signal ended the process.
std::optional<int> exit_code(int status) {
  return WIFEXITED(status) ? std::optional(WEXITSTATUS(status)) : std::nullopt;
}

// By a signal that it heard.
bool is_interrupted(int status) {
  const auto code = exit_code(status);
  return code == kInterrupted || code == 128 + SIGTERM || code == 128 + SIGHUP;
}

int say(std::string_view message, int code) {
  // A worker that was killed may have left its progress on the line.
  base::print_stderr(
      fmt::format("{}bmojo: {}\n", base::is_live_terminal() ? "\r\x1b[K" : "", message));
  return code;
}

class Launcher {
 public:
  Launcher(int count, int threads, char** argv)
      : threads_(threads), argv_(argv), workers_(static_cast<size_t>(count)) {}
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  int run();

 private:
  struct Worker {
    pid_t process = -1;
    int messages = -1;          // what it writes to stderr; -1: that is our own
    std::optional<int> status;  // as waitpid gives it, when it has ended
    bool was_told = false;      // to end, by us

    bool is_running() const { return process > 0 && !status; }
  };

  int count() const { return static_cast<int>(workers_.size()); }
  void start(int rank);
  void hear(int signal);
  void tell(int signal);
  void reap();
  void end_the_others();
  bool is_failure(int status) const;
  int verdict() const;
  int blame(int rank) const;

  int threads_;
  char** argv_;
  MeetingPlace store_;
  HeldSignals signals_;
  std::vector<Worker> workers_;
  std::vector<int> ended_;  // ranks, in the order of their ends
  int told_ = 0;            // the signal that was passed on to all
  base::SecondSignal second_signal_;
  bool is_cut_short_ = false;  // by a second signal
  std::optional<Clock::time_point> failed_;
  seconds grace_{0};
};

Launcher::~Launcher() {
  for (auto& worker : workers_) {
    if (worker.is_running()) {  // starting the next one failed
      ::kill(worker.process, SIGKILL);
      ::waitpid(worker.process, nullptr, 0);
    }
    if (worker.messages >= 0) ::close(worker.messages);
  }
}

int Launcher::run() {
  for (int rank = 0; rank < count(); ++rank) start(rank);
  while (std::ranges::any_of(workers_, &Worker::is_running)) {
    const int signal = signals_.next();
    if (signal != 0 && signal != SIGCHLD) hear(signal);
    reap();
    end_the_others();
  }
  return verdict();
}

void Launcher::start(int rank) {
  auto& worker = workers_[static_cast<size_t>(rank)];
  auto entries = environment_of({rank, count(), "file:" + store_.path()}, threads_);
  std::vector<char*> environment;
  for (auto& entry : entries) environment.push_back(entry.data());
  environment.push_back(nullptr);
  const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (rank > 0) worker.messages = ::memfd_create("bmojo-worker", MFD_CLOEXEC);
  const pid_t parent = ::getpid();

  worker.process = ::fork();
  if (worker.process == 0) {  // until the program is replaced, system calls only
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kLost);
    if (rank > 0) {
      ::dup2(nowhere, STDIN_FILENO);
      ::dup2(nowhere, STDOUT_FILENO);
      ::dup2(worker.messages >= 0 ? worker.messages : nowhere, STDERR_FILENO);
    }
    ::sigprocmask(SIG_SETMASK, &signals_.before(), nullptr);
    ::execve("/proc/self/exe", argv_, environment.data());
    ::_exit(kFailed);
  }
  const int error = errno;
  if (nowhere >= 0) ::close(nowhere);
  if (worker.process < 0)
    throw base::RunError(
        fmt::format("worker {} of {} cannot be started: {}", rank, count(), std::strerror(error)));
}

void Launcher::hear(int signal) {
  if (!second_signal_.is_second(signal)) return tell(signal);
  is_cut_short_ = true;
  for (const auto& worker : workers_)
    if (worker.is_running()) ::kill(worker.process, SIGKILL);
}

// Queued, which marks it as passed on: a terminal sends Ctrl-C to the workers too.
void Launcher::tell(int signal) {
  told_ = signal;
  for (const auto& worker : workers_)
    if (worker.is_running()) ::sigqueue(worker.process, signal, sigval{});
}

void Launcher::reap() {
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    auto& worker = workers_[rank];
    int status = 0;
    if (!worker.is_running() || ::waitpid(worker.process, &status, WNOHANG) != worker.process)
      continue;
    worker.status = status;
    ended_.push_back(static_cast<int>(rank));
    // Of workers that are still starting, the others would wait for this one.
    if (is_interrupted(status) && told_ == 0) tell(SIGTERM);
    if (failed_ || !is_failure(status)) continue;
    failed_ = Clock::now();
    grace_ = exit_code(status) == kMistake ? kGraceOfMistake : kGrace;
  }
}

void Launcher::end_the_others() {
  if (!failed_) return;
  const auto since = Clock::now() - *failed_;
  if (since < grace_) return;
  const bool is_last_word = since >= grace_ + kGraceOfSignal;
  for (auto& worker : workers_) {
    if (!worker.is_running() || (worker.was_told && !is_last_word)) continue;
    ::kill(worker.process, is_last_word ? SIGKILL : SIGTERM);
    worker.was_told = true;
  }
}

// To be done, or interrupted with everything saved, takes nothing from the others; nor does the end
// by a signal that was passed on before the worker could hear it.
bool Launcher::is_failure(int status) const {
  if (told_ != 0 && WIFSIGNALED(status) && WTERMSIG(status) == told_) return false;
  return exit_code(status) != 0 && !is_interrupted(status);
}

int Launcher::verdict() const {
  const auto& first = workers_.front();
  const auto code = exit_code(*first.status);
  if (is_interrupted(*first.status) || (is_cut_short_ && code != 0)) return kInterrupted;
  // Worker 0 writes to our stderr: it has said what there is to say.
  if (code && code != 0 && code != kLost && !first.was_told) return *code;
  // The first to fail is the cause, unless it only lost another one or was ended by us.
  const auto failure = [&](int rank) {
    return is_failure(*workers_[static_cast<size_t>(rank)].status);
  };
  const auto cause = std::ranges::find_if(ended_, [&](int rank) {
    const auto& worker = workers_[static_cast<size_t>(rank)];
    return failure(rank) && !worker.was_told && exit_code(*worker.status) != kLost;
  });
  if (cause != ended_.end()) return blame(*cause);
  if (told_ != 0 && code != 0) return kInterrupted;
  const auto victim = std::ranges::find_if(ended_, failure);
  if (victim == ended_.end()) return 0;
  return say(
      fmt::format("worker {} of {} lost the others; the last checkpoint stays", *victim, count()),
      kFailed);
}

int Launcher::blame(int rank) const {
  const auto& worker = workers_[static_cast<size_t>(rank)];
  const auto code = exit_code(*worker.status);
  const auto message = last_message(worker.messages);
  const auto who = fmt::format("worker {} of {}", rank, count());
  if (!code)
    return say(fmt::format("{} was lost (signal {}); the last checkpoint stays", who,
                           WTERMSIG(*worker.status)),
               kFailed);
  const int result = *code == kMistake || *code > 128 ? *code : kFailed;
  if (!message.empty()) return say(fmt::format("{}: {}", who, message), result);
  return say(fmt::format("{} was lost (exit code {}); the last checkpoint stays", who, *code),
             result);
}

}  // namespace

std::optional<Place> place_from_environment() {
  Place place;
  if (variable(kRank)) {
    place.count = number(kCount, 1, kMostWorkers);
    place.rank = number(kRank, 0, place.count - 1);
    place.store = text(kStore);
    return place;
  }
  if (!variable("RANK") || !variable("WORLD_SIZE")) return std::nullopt;
  place.count = number("WORLD_SIZE", 1, kMostWorkers);
  place.rank = number("RANK", 0, place.count - 1);
  if (place.count == 1) return place;
  const auto host = text("MASTER_ADDR");
  place.store = fmt::format("{}:{}", host, number("MASTER_PORT", 1, 65535));
  place.store_is_served = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  return place;
}

int run_workers(int count, int threads, int argc, char** argv) {
  base::require(count >= 1 && count <= kMostWorkers, "workers: must be from 1 to {}, got {}",
                kMostWorkers, count);
  std::vector<char*> words(argv, argv + argc);
  words.push_back(nullptr);
  std::fflush(nullptr);
  return Launcher(count, threads, words.data()).run();
}

void as_worker(const std::function<void()>& work) {
  try {
    work();
  } catch (const LostWorker&) {
    if (!variable(kRank)) throw;
    std::_Exit(kLost);
  }
}

}  // namespace bmojo::train
