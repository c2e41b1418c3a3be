// One model that many threads use at once; also built for ThreadSanitizer.
#include <gtest/gtest.h>

#include <latch>
#include <thread>

#include "tests/library/support.h"

namespace bmojo::test {
namespace {

constexpr size_t kThreads = 6;
#if defined(__SANITIZE_THREAD__)
constexpr int kRounds = 1;  // it needs no luck
#else
constexpr int kRounds = 10;
#endif

// What one thread does: reads in parts and in a batch, forks, draws, saves and loads.
std::vector<int64_t> work(const api::Model& model, const api::Tokenizer& tokenizer,
                          const api::Sampler& sampler, const TempFolder& folder, size_t number) {
  const auto text = random_ids(bytes_model(), 40 + 30 * static_cast<int64_t>(number), number);
  auto first = model.begin(number), second = model.begin(number + 100);
  first.read(std::span(text).first(17));
  const api::Reading batch[] = {{&first, std::span(text).subspan(17)}, {&second, text}};
  model.read(batch);
  auto ids = write(first, sampler, 20);
  const auto file = folder / fmt::format("{}.state", number);
  first.save(file);
  auto third = model.load(file);
  const api::GenerateOptions options{.max_tokens = 20, .stop = {"\n\n"}, .ignore_eos = true};
  for (auto* state : {&second, &third}) {
    const auto written = generate(*state, sampler, tokenizer, options).ids;
    ids.insert(ids.end(), written.begin(), written.end());
  }
  return ids;
}

void compare(int threads) {
  const TempFolder folder;
  write_strong_checkpoint(bytes_model(), 5, folder.path());
  const api::Model model(folder.path(), {.threads = threads});
  const auto tokenizer = *model.tokenizer();
  const api::Sampler sampler({.top_k = 50, .top_p = 0.9, .repetition_penalty = 1.2});
  std::vector<std::vector<int64_t>> alone(kThreads);
  std::vector<std::vector<std::vector<int64_t>>> together(kThreads);
  for (size_t i = 0; i < kThreads; ++i) alone[i] = work(model, tokenizer, sampler, folder, i);
  {
    std::latch start(kThreads);
    std::vector<std::jthread> callers;
    for (size_t i = 0; i < kThreads; ++i)
      callers.emplace_back([&, i] {
        start.arrive_and_wait();
        for (int round = 0; round < kRounds; ++round)
          together[i].push_back(work(model, tokenizer, sampler, folder, i));
      });
  }
  for (size_t i = 0; i < kThreads; ++i)
    for (const auto& ids : together[i]) EXPECT_EQ(ids, alone[i]) << i;
}

TEST(Threads, EachOnItsOwn) { compare(1); }
TEST(Threads, ThatShareThreadsOfTheModel) { compare(3); }

// States are copied and destroyed, the last one with the model, wherever they end up.
TEST(Threads, TheLastStateEndsTheModel) {
  const TempFolder folder;
  write_strong_checkpoint(bytes_model(), 5, folder.path());
  auto state = api::Model(folder.path(), {.threads = 2}).begin();
  state.read(1);
  const auto expected = write(state, api::Sampler(), 5);
  state = state.model().begin();
  state.read(1);
  std::vector<std::vector<int64_t>> got(kThreads);
  {
    std::vector<std::jthread> callers;
    for (size_t i = 0; i < kThreads; ++i)
      callers.emplace_back(
          [&got, i, own = state]() mutable { got[i] = write(own, api::Sampler(), 5); });
    state = api::State(std::move(state));
    const auto gone = std::move(state);
  }
  for (const auto& ids : got) EXPECT_EQ(ids, expected);
}

}  // namespace
}  // namespace bmojo::test
