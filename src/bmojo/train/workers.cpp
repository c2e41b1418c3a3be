// Apart from the rest: the one file that sees c10d.
#include "bmojo/train/workers.h"

#include <ATen/ATen.h>
#include <c10/util/Logging.h>
#include <netdb.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "bmojo/base/digest.h"
#include "bmojo/base/printable.h"
#include "bmojo/train/heartbeat.h"

// c10d declares its Gloo part under this name only. The headers of gloo come from another version
// than the code inside torch: they may be included, but nothing of gloo is made or called here
// except through c10d, whose devices stay opaque pointers.
#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO
#endif
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace bmojo::train {
namespace {

using c10d::ProcessGroupGloo;
using Milliseconds = std::chrono::milliseconds;

// Machines start at their own pace.
constexpr Milliseconds kJoining = std::chrono::minutes(5);
// A process that ends closes its connections, which ends a wait at once; a machine that vanishes is
// noticed by the heartbeat. One that is slow may be validating for hours.
constexpr Milliseconds kPatience = std::chrono::hours(24);

constexpr std::string_view kFile = "file:";
constexpr const char* kLoopback = "127.0.0.1";

// Without the line of source code before it and the advice after it.
std::string reason(const std::exception& failure) {
  const auto* error = dynamic_cast<const c10::Error*>(&failure);
  std::string text = error != nullptr ? error->what_without_backtrace() : failure.what();
  if (text.starts_with('['))
    if (const auto end = text.find("] "); end != text.npos) text.erase(0, end + 2);
  text = text.substr(0, text.find('\n'));
  return base::printable(text.substr(0, text.find(". ")), 200);
}

// Runs what fails only when another worker cannot be reached.
template <typename Call>
auto or_lost(int rank, int count, std::string_view what, Call call) {
  try {
    return call();
  } catch (const std::exception& failure) {
    throw LostWorker(
        fmt::format("worker {} of {}: lost {} ({})", rank, count, what, reason(failure)));
  }
}

class GlooSum : public PendingSum {
 public:
  GlooSum(int rank, int count, c10::intrusive_ptr<c10d::Work> work)
      : rank_(rank), count_(count), work_(std::move(work)) {}
  void wait() override {
    or_lost(rank_, count_, "another worker", [&] { work_->wait(); });
  }

 private:
  int rank_, count_;
  c10::intrusive_ptr<c10d::Work> work_;
};

class NoSum : public PendingSum {
 public:
  void wait() override {}
};

struct Address {
  std::string host;
  uint16_t port = 0;
};

Address parse_address(const std::string& store) {
  const auto colon = store.rfind(':');
  const std::string digits = colon == store.npos ? "" : store.substr(colon + 1);
  Address address;
  const auto* end = digits.data() + digits.size();
  const auto [last, error] = std::from_chars(digits.data(), end, address.port);
  base::require(error == std::errc() && last == end && address.port > 0 && colon > 0,
                "workers: store must be file:PATH or HOST:PORT, got {}", base::in_quotes(store));
  address.host = store.substr(0, colon);
  return address;
}

// This machine's own address on the way to another one: the others can reach it there.
std::string address_towards(const Address& other) {
  addrinfo hints{}, *addresses = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  const int error =
      ::getaddrinfo(other.host.c_str(), fmt::format("{}", other.port).c_str(), &hints, &addresses);
  if (error != 0) throw base::RunError(fmt::format("{}: {}", other.host, ::gai_strerror(error)));
  std::string address;
  for (const auto* each = addresses; each != nullptr && address.empty(); each = each->ai_next) {
    // Connecting a datagram socket sends nothing; it chooses the route.
    const int descriptor = ::socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, 0);
    if (descriptor < 0) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    char text[NI_MAXHOST];
    if (::connect(descriptor, each->ai_addr, each->ai_addrlen) == 0 &&
        ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof text, nullptr, 0,
                      NI_NUMERICHOST) == 0)
      address = text;
    ::close(descriptor);
  }
  ::freeaddrinfo(addresses);
  if (address.empty()) throw base::RunError(fmt::format("{}: there is no way to it", other.host));
  return address;
}

c10::intrusive_ptr<c10d::Store> open_store(const Place& place, bool serve) {
  c10::intrusive_ptr<c10d::Store> store;
  if (place.store.starts_with(kFile)) {
    store = c10::make_intrusive<c10d::FileStore>(place.store.substr(kFile.size()), place.count);
  } else {
    const auto address = parse_address(place.store);
    c10d::TCPStoreOptions options;
    options.port = address.port;
    options.isServer = serve && place.rank == 0 && !place.store_is_served;
    options.timeout = kJoining;
    store = c10::make_intrusive<c10d::TCPStore>(address.host, options);
  }
  store->setTimeout(kJoining);
  return c10::make_intrusive<c10d::PrefixStore>("bmojo", store);
}

// The wait for a worker that is lost cannot be called off, so the process ends here. A checkpoint
// that is being written stays unfinished, as after a kill.
[[noreturn]] void end_without(const Place& place, const Heartbeat::Pace& pace,
                              const std::string& who) {
  const auto line = fmt::format(
      "bmojo: worker {} of {}: lost {} (silent for {} s); the last checkpoint stays\n", place.rank,
      place.count, who, std::chrono::duration_cast<std::chrono::seconds>(pace.silence).count());
  // stderr may have gone with the other machine: no matter.
  std::ignore = ::write(STDERR_FILENO, line.data(), line.size());
  ::_exit(1);
}

auto open_device(const Place& place) {
  if (place.store.starts_with(kFile)) return ProcessGroupGloo::createDeviceForHostname(kLoopback);
  // torch's own variable: for machines whose names lead to the wrong network.
  const char* chosen = std::getenv("GLOO_SOCKET_IFNAME");
  if (chosen != nullptr && *chosen != '\0')
    return ProcessGroupGloo::createDeviceForInterface(chosen);
  return ProcessGroupGloo::createDeviceForHostname(address_towards(parse_address(place.store)));
}

}  // namespace

struct Workers::Group {
  // None on one machine: run_workers() sees who ends. The first to come and the last to go: also
  // while connections are taken down somebody may vanish.
  c10::intrusive_ptr<c10d::Store> heartbeat_store;
  std::unique_ptr<Heartbeat> heartbeat;
  c10::intrusive_ptr<ProcessGroupGloo> gloo;

  explicit Group(const Place& place) {
    auto options = ProcessGroupGloo::Options::create(kJoining);
    options->devices.push_back(open_device(place));
    gloo = c10::make_intrusive<ProcessGroupGloo>(open_store(place, /*serve=*/true), place.rank,
                                                 place.count, std::move(options));
    if (!place.store.starts_with(kFile)) heartbeat_store = open_store(place, /*serve=*/false);
  }

  // Once all have come.
  void start_heartbeat(const Place& place) {
    if (heartbeat_store == nullptr) return;
    const Heartbeat::Pace pace;
    const auto add = [store = heartbeat_store](const std::string& key, int64_t amount) {
      return store->add(key, amount);
    };
    const auto lost = [place, pace](const std::string& who) { end_without(place, pace, who); };
    heartbeat = std::make_unique<Heartbeat>(place.rank, place.count, add, lost, pace);
  }

  // Around the ring, piece by piece: the order of the additions depends on the size and on the
  // number of workers alone, and every worker receives the finished pieces of the others.
  std::shared_ptr<PendingSum> start(const at::Tensor& tensor, c10d::ReduceOp::RedOpType operation,
                                    Milliseconds patience = kPatience) const {
    TORCH_CHECK(tensor.is_contiguous() && tensor.is_cpu(),
                "workers: a tensor must be contiguous and on the CPU");
    std::vector<at::Tensor> tensors = {tensor.detach()};
    c10d::AllreduceOptions options;
    options.reduceOp = operation;
    options.timeout = patience;
    return std::make_shared<GlooSum>(gloo->getRank(), gloo->getSize(),
                                     gloo->allreduce(tensors, options));
  }
};

Workers Workers::join(const Place& place) {
  base::require(place.count >= 1 && place.rank >= 0 && place.rank < place.count,
                "workers: rank must be from 0 to {}, got {}", place.count - 1, place.rank);
  Workers workers;
  workers.rank_ = place.rank;
  workers.count_ = place.count;
  if (place.count == 1) return workers;
  if (!place.store.starts_with(kFile)) parse_address(place.store);
  // Writing to a worker that has ended must fail, not end this one too.
  std::signal(SIGPIPE, SIG_IGN);
  // What goes wrong is reported once, by us: torch would print each attempt and a stack.
  ::setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  c10::initLogging();
  const auto joining = [&](auto call) {
    return or_lost(place.rank, place.count, "the others while joining them", call);
  };
  auto group = joining([&] { return std::make_shared<Group>(place); });
  workers.group_ = group;
  joining([&] { group->start(at::zeros({1}), c10d::ReduceOp::SUM, kJoining)->wait(); });
  group->start_heartbeat(place);
  // All have come: the file has served, and a run that is killed leaves none behind.
  if (workers.first() && place.store.starts_with(kFile))
    std::remove(place.store.substr(kFile.size()).c_str());
  return workers;
}

std::shared_ptr<PendingSum> Workers::start_sum(const at::Tensor& tensor) const {
  if (group_ == nullptr) return std::make_shared<NoSum>();
  return group_->start(tensor, c10d::ReduceOp::SUM);
}

void Workers::sum(at::Tensor& tensor) const {
  if (group_ == nullptr) return;
  const at::NoGradGuard no_grad;
  const auto whole = tensor.contiguous();
  start_sum(whole)->wait();
  if (!whole.is_same(tensor)) tensor.copy_(whole);
}

std::vector<double> Workers::sum(std::vector<double> values) const {
  if (group_ == nullptr || values.empty()) return values;
  const auto all = at::empty({static_cast<int64_t>(values.size())}, at::kDouble);
  std::ranges::copy(values, all.data_ptr<double>());
  start_sum(all)->wait();
  std::copy_n(all.data_ptr<double>(), values.size(), values.begin());
  return values;
}

double Workers::max(double value) const {
  if (std::isnan(value)) value = std::numeric_limits<double>::infinity();
  if (group_ == nullptr) return value;
  const auto one = at::full({1}, value, at::kDouble);
  group_->start(one, c10d::ReduceOp::MAX)->wait();
  return one.item<double>();
}

void Workers::require_same(const std::string& what, const std::string& text) const {
  const auto digest = base::digest_of_text(text);
  // As many digits as a double holds.
  const auto digits = digest.substr(digest.size() - 12);
  const auto number = static_cast<double>(std::stoull(digits, nullptr, 16));
  base::require(max(number) == -max(-number),
                "workers: {} must be the same for all {}, but it differs", what, count_);
}

void Workers::barrier() const { sum(std::vector<double>{0}); }

}  // namespace bmojo::train
