#include <gtest/gtest.h>

#include <map>

#include "tests/data/sequence.h"

namespace bmojo::data {
namespace {

using test::places_due;
using test::refusal;
using test::Sequence;
using test::sequence;

struct Rules {
  int64_t low, high, vocab, gap, noise_vocab;
  double noise;
};

int64_t count_noise(const Sequence& s, const Rules& rules) {
  return std::ranges::count_if(s.ids,
                               [&](int64_t id) { return id >= rules.vocab - rules.noise_vocab; });
}

// Everything the task promises, read off the sequence alone.
void check(const Sequence& s, const Rules& rules) {
  const int64_t first_noise = rules.vocab - rules.noise_vocab, half = first_noise / 2;
  const auto due = places_due(s);
  const int64_t asked = std::ssize(due), num_noise = count_noise(s, rules);
  ASSERT_GE(asked, rules.low);
  ASSERT_LE(asked, rules.high);
  const int64_t first_slot = 2 * asked + rules.gap + num_noise;
  // The share, to the nearest token.
  ASSERT_NEAR(static_cast<double>(num_noise), rules.noise * static_cast<double>(first_slot), 1);
  std::map<int64_t, int64_t> value_of;
  int64_t fillers = 0;
  for (int64_t t = 0; t < first_slot; ++t) {
    ASSERT_EQ(s.targets[t], kNotScored);
    ASSERT_GT(s.ids[t], 0);
    ASSERT_LT(s.ids[t], rules.vocab);
    if (s.ids[t] >= half) {
      fillers += s.ids[t] < first_noise;
      continue;
    }
    ASSERT_EQ(fillers, 0) << "pairs stand before the gap";
    ASSERT_TRUE(value_of.emplace(s.ids[t], s.ids[t + 1]).second) << "a key twice";
    ++t;
    ASSERT_GE(s.ids[t], half);
    ASSERT_LT(s.ids[t], first_noise) << "noise inside a pair";
  }
  ASSERT_EQ(fillers, rules.gap);
  ASSERT_EQ(std::ssize(value_of), asked);
  for (int64_t t = first_slot; t < std::ssize(s.ids); ++t) {
    ASSERT_LT(s.ids[t], first_noise) << "noise among the questions";
    if (s.targets[t] == kNotScored) {
      ASSERT_GE(s.ids[t], half);
      continue;
    }
    ASSERT_EQ((t - first_slot) % 2, 0);
    ASSERT_EQ(s.targets[t], value_of.at(s.ids[t]));
    value_of.erase(s.ids[t]);
  }
  ASSERT_TRUE(value_of.empty()) << "a key is not asked";
}

TEST(NoisyMqar, EverySequenceKeepsTheRules) {
  const std::pair<std::string, Rules> cases[] = {
      {"noisy-mqar:pairs=8,length=96,vocab=128", {8, 8, 128, 0, 16, 0.2}},
      {"noisy-mqar:pairs=2..5,length=61,vocab=17,gap=9,noise=0.45,noise_vocab=3",
       {2, 5, 17, 9, 3, 0.45}},
      {"noisy-mqar:pairs=3,length=17,vocab=9,gap=5,noise=0,noise_vocab=1", {3, 3, 9, 5, 1, 0}},
      {"noisy-mqar:pairs=2,length=50,vocab=40,gap=0,noise=0.9", {2, 2, 40, 0, 16, 0.9}},
  };
  for (const auto& [text, rules] : cases)
    for (uint64_t i = 0; i < 300; ++i)
      check(sequence(parse_task(text), 3, i % 2 == 0 ? Split::train : Split::test, i), rules);
}

// Two pairs, four fillers and six noise tokens: each of these twelve is noise as often. Read off as
// how many noise tokens stand before the first pair, between the pairs, and behind them: seven
// spaces share six tokens alike. Of 8,000 sequences, 0.06 is four standard deviations.
TEST(NoisyMqar, NoiseStandsBetweenAndAround) {
  const auto task =
      parse_task("noisy-mqar:pairs=2,length=24,vocab=64,gap=4,noise=0.42857,noise_vocab=16");
  double before = 0, between = 0, behind = 0;
  const int64_t n = 8000;
  for (int64_t i = 0; i < n; ++i) {
    int64_t pairs = 0;
    for (const auto id : sequence(task, 1, Split::train, i).ids) {
      if (id < 24 && ++pairs > 2) break;
      if (id >= 48) (pairs == 0 ? before : pairs == 1 ? between : behind) += 1.0 / n;
    }
  }
  EXPECT_NEAR(before, 6.0 / 7, 0.06);
  EXPECT_NEAR(between, 6.0 / 7, 0.06);
  EXPECT_NEAR(behind, 6.0 * 5 / 7, 0.06);
}

TEST(NoisyMqar, ImpossibleOnesAreRefusedWithWhatWouldFit) {
  EXPECT_EQ(refusal("noisy-mqar:pairs=8,length=100,gap=84"),
            "task noisy-mqar: length must be at least (2 x pairs + gap) / (1 - noise) + 2 x pairs "
            "= 141, got 100; length=141 or gap=51 would fit");
  EXPECT_EQ(refusal("noisy-mqar:pairs=32,length=100"),
            "task noisy-mqar: length must be at least (2 x pairs + gap) / (1 - noise) + 2 x pairs "
            "= 144, got 100; length=144 or pairs=22 would fit");
  for (const auto* exact : {"pairs=8,length=141,gap=84", "pairs=8,length=100,gap=51",
                            "pairs=22,length=100", "pairs=8,length=64,vocab=34"})
    EXPECT_EQ(refusal(std::string("noisy-mqar:") + exact), "");
  EXPECT_EQ(refusal("noisy-mqar:pairs=8,length=64,vocab=33"),
            "task noisy-mqar: vocab must have noise_vocab = 16 ids and a key for each pair, got 33 "
            "for 8 pairs; at least 34 is needed");
  for (const auto* share : {"0.91", "-0.1", "1", "nan", "much", "0.2x", ""})
    EXPECT_EQ(
        refusal(fmt::format("noisy-mqar:pairs=2,length=64,noise={}", share)),
        fmt::format("task noisy-mqar: noise must be a number from 0 to 0.9, got '{}'", share));
}

}  // namespace
}  // namespace bmojo::data
