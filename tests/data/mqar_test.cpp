#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "bmojo/data/draws.h"
#include "tests/data/sequence.h"

namespace bmojo::data {
namespace {

using test::places_due;
using test::refusal;
using test::Sequence;
using test::sequence;

struct Rules {
  int64_t low, high, vocab, gap;
  bool padded = false;
  int64_t span = 0;  // 0: twice the pairs
};

// The pairs of a sequence, by their keys: where each key stands first.
std::map<int64_t, int64_t> places_of_keys(const Sequence& s, int64_t vocab) {
  std::map<int64_t, int64_t> places;
  for (int64_t t = 0; t < std::ssize(s.ids); ++t)
    if (s.ids[t] > 0 && s.ids[t] < vocab / 2) places.emplace(s.ids[t], t);
  return places;
}

// Everything the task promises, read off the sequence alone.
void check_mqar(const Sequence& s, const Rules& rules) {
  const auto due = places_due(s);
  const int64_t asked = std::ssize(due), half = rules.vocab / 2;
  const int64_t span = rules.span > 0 ? rules.span : 2 * asked;
  ASSERT_GE(asked, rules.low);
  ASSERT_LE(asked, rules.high);
  const auto place_of = places_of_keys(s, rules.vocab);
  ASSERT_EQ(std::ssize(place_of), asked) << "as many keys as questions";
  std::set<int64_t> written(due.begin(), due.end()), questions;
  for (const auto& [key, place] : place_of) {
    ASSERT_LT(place, span);
    ASSERT_EQ(place % 2, 0);
    ASSERT_GE(s.ids[place + 1], half);
    ASSERT_LT(s.ids[place + 1], rules.vocab);
    ASSERT_EQ(std::ranges::count(s.ids, key), 2) << "in its pair and in its question";
    written.insert({place, place + 1});
  }
  for (const int64_t t : due) {
    ASSERT_GE(t, span + rules.gap);
    ASSERT_EQ((t - span - rules.gap) % 2, 0);
    ASSERT_EQ(s.targets[t], s.ids[place_of.at(s.ids[t]) + 1]);
    ASSERT_TRUE(questions.insert(s.ids[t]).second) << "asked twice";
  }
  for (int64_t t = 0; t < std::ssize(s.ids); ++t) {
    const int64_t filler = rules.padded ? 0 : std::clamp(s.ids[t], half, rules.vocab - 1);
    ASSERT_TRUE(written.contains(t) || s.ids[t] == filler) << t;
  }
}

TEST(Mqar, EverySequenceKeepsTheRules) {
  const std::pair<std::string, Rules> cases[] = {
      {"mqar:pairs=8,length=64,vocab=128", {8, 8, 128, 0}},
      {"mqar:pairs=2..5,length=61,vocab=13,gap=21,fill=pad", {2, 5, 13, 21, true}},
      {"mqar:pairs=3,length=17,vocab=9,gap=5", {3, 3, 9, 5}},
      {"mqar:pairs=8,length=120,vocab=64,span=64,gap=13", {8, 8, 64, 13, false, 64}},
      {"mqar:pairs=2..5,length=40,vocab=13,span=10,gap=3,fill=pad", {2, 5, 13, 3, true, 10}},
  };
  for (const auto& [text, rules] : cases)
    for (uint64_t i = 0; i < 200; ++i)
      check_mqar(sequence(parse_task(text), 3, i % 2 == 0 ? Split::train : Split::test, i), rules);
}

TEST(Mqar, ARangeMixesAllCounts) {
  const auto task = parse_task("mqar:pairs=4..6,length=64");
  std::map<int64_t, int64_t> counts;
  for (uint64_t i = 0; i < 600; ++i)
    ++counts[std::ssize(places_due(sequence(task, 1, Split::train, i)))];
  ASSERT_EQ(counts.size(), 3u);
  for (const auto& [pairs, count] : counts) EXPECT_NEAR(count, 200, 60) << pairs;
}

// With one slot after the longest gap, the first question tells the gap of some sequences.
TEST(Mqar, AGapMayBeDrawn) {
  const auto task = parse_task("mqar:pairs=1,length=12,vocab=32,span=4,gap=0..6");
  EXPECT_EQ(task.text, "mqar:pairs=1,length=12,vocab=32,span=4,gap=0..6,fill=random");
  std::set<int64_t> places;
  for (uint64_t i = 0; i < 400; ++i)
    places.insert(places_due(sequence(task, 1, Split::train, i)).front());
  // Even gaps begin slots at 4, 6, 8, 10 and odd ones at 5, 7, 9, the last slot begins at 10.
  EXPECT_EQ(places, (std::set<int64_t>{4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(refusal("mqar:pairs=1,length=12,vocab=32,span=4,gap=0..7"),
            "task mqar: length must be at least span + 2 x pairs + gap = 13, got 12; length=13 or "
            "gap=6 would fit");
  EXPECT_EQ(refusal("mqar:pairs=1,length=12,gap=6..2"),
            "task mqar: gap must be a range from low to high, got '6..2'");
}

// p ∝ (i + 1)^(a - 1): with one pair, the slot's frequency is the weight itself. Draws are fixed by
// their seed; 0.012 is 3.4 standard deviations of a frequency near 1/2 of 20,000.
void expect_zipf_slots(const Task& task, int64_t first_slot) {
  std::vector<double> seen(8), expected;
  const int64_t n = 20000;
  for (int64_t i = 0; i < n; ++i) {
    const auto s = sequence(task, 1, Split::train, i);
    seen.at((places_due(s).at(0) - first_slot) / 2) += 1.0 / n;
  }
  double sum = 0;
  for (int i = 0; i < 8; ++i) sum += std::pow(i + 1, -0.99);
  for (int i = 0; i < 8; ++i) EXPECT_NEAR(seen[i], std::pow(i + 1, -0.99) / sum, 0.012) << i;
}

TEST(Mqar, QuestionsComeSoonMoreOften) {
  expect_zipf_slots(parse_task("mqar:pairs=1,length=18,vocab=64"), 2);
  expect_zipf_slots(parse_task("mqar:pairs=1,length=35,vocab=64,span=12,gap=7"), 19);
}

// Each of the 16 places is taken with probability 4/16. Of 8,000 sequences, 0.02 is four standard
// deviations.
TEST(Mqar, PairsStandAnywhereInTheSpan) {
  const auto task = parse_task("mqar:pairs=4,length=48,vocab=64,span=32");
  std::vector<double> taken(16);
  const int64_t n = 8000;
  for (int64_t i = 0; i < n; ++i)
    for (const auto& [key, place] : places_of_keys(sequence(task, 1, Split::train, i), 64))
      taken.at(place / 2) += 1.0 / n;
  for (int i = 0; i < 16; ++i) EXPECT_NEAR(taken[i], 0.25, 0.02) << i;
}

// A sequence is part of the interface: what was trained on must stay what it was. The digests are
// those of the task before it had a span.
TEST(Mqar, SequencesByHeart) {
  const auto s = sequence(parse_task("mqar:pairs=2,length=12,vocab=16"), 0, Split::train, 0);
  EXPECT_EQ(test::text_of(s), "4 12 2 12 4->12 12 2->12 14 9 10 8 14");
  EXPECT_EQ(test::digest_of("mqar:pairs=8,length=64,vocab=128"), "31f5b30c06583cf7");
  EXPECT_EQ(test::digest_of("mqar:pairs=8,length=64,vocab=128,span=16"), "31f5b30c06583cf7");
  EXPECT_EQ(test::digest_of("mqar:pairs=2..5,length=61,vocab=13,gap=21,fill=pad"),
            "655df13f90be45ae");
  EXPECT_EQ(test::digest_of("mqar:pairs=4..24,length=256,gap=32"), "98ed806fe88c1d67");
}

TEST(Mqar, ImpossibleOnesAreRefusedWithWhatWouldFit) {
  EXPECT_EQ(refusal("mqar:pairs=32,length=100,gap=4"),
            "task mqar: length must be at least 4 x pairs + gap = 132, got 100; length=132 "
            "or pairs=24 would fit");
  EXPECT_EQ(refusal("mqar:pairs=8,length=100,gap=90"),
            "task mqar: length must be at least 4 x pairs + gap = 122, got 100; length=122 "
            "or pairs=2 or gap=68 would fit");
  EXPECT_EQ(refusal("mqar:pairs=8,length=100,span=64,gap=30"),
            "task mqar: length must be at least span + 2 x pairs + gap = 110, got 100; length=110 "
            "or pairs=3 or gap=20 would fit");
  EXPECT_EQ(refusal("mqar:pairs=8,length=64,vocab=16"),
            "task mqar: vocab must have a key for each pair, got 16 for 8 pairs; at least 18 is "
            "needed");
  EXPECT_EQ(
      refusal("mqar:pairs=4..16,length=200,span=16"),
      "task mqar: span must be at least 2 x pairs = 32, got 16; span=32 or pairs=8 would fit");
  EXPECT_EQ(refusal("mqar:pairs=4,length=64,span=17"),
            "task mqar: span must be even, got 17; span=16 or span=18 would fit");
  for (const auto* exact : {"pairs=32,length=132,gap=4", "pairs=2,length=100,gap=90",
                            "pairs=8,length=110,span=64,gap=30", "pairs=8,length=64,vocab=18"})
    EXPECT_EQ(refusal(std::string("mqar:") + exact), "");
}

// What a memory of m_e places holds that keeps the first tokens, the most recent ones or any of
// those before the first question: too little to answer by, so what a model answers beyond it was
// chosen. An answer is held where its value is kept.
TEST(Mqar, TightSizesLeaveLittleToASimpleMemory) {
  struct Size {
    int64_t pairs, span, gap;
  };
  for (const auto& [pairs, span, gap] :
       {Size{8, 64, 112}, Size{16, 128, 160}, Size{24, 192, 192}, Size{64, 512, 384}}) {
    const int64_t places = 2 * pairs, n = 3000;
    const auto task = parse_task(fmt::format("mqar:pairs={},length={},span={},gap={}", pairs,
                                             span + gap + 4 * pairs, span, gap));
    double first = 0, recent = 0, any = 0;
    for (int64_t i = 0; i < n; ++i) {
      const auto s = sequence(task, 1, Split::test, i);
      const int64_t before = places_due(s).front();
      base::Random random({2, static_cast<uint64_t>(i)});
      const auto kept = draw_distinct(random, places, 0, before);
      const std::set<int64_t> is_kept(kept.begin(), kept.end());
      for (const auto& [key, place] : places_of_keys(s, task.vocab_size)) {
        first += place + 1 < places;
        recent += place + 1 >= before - places;
        any += is_kept.contains(place + 1);
      }
    }
    const auto answers = static_cast<double>(n * pairs);
    EXPECT_GT(first / answers, 0.2) << pairs;  // a quarter of the span
    EXPECT_LE(first / answers, 0.35) << pairs;
    EXPECT_LE(recent / answers, 0.35) << pairs;
    EXPECT_GT(any / answers, 0.05) << pairs;
    EXPECT_LE(any / answers, 0.35) << pairs;
  }
}

}  // namespace
}  // namespace bmojo::data
