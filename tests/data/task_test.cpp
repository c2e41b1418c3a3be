#include "bmojo/data/task.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "bmojo/base/error.h"

namespace bmojo {
namespace {

struct Sequence {
  std::vector<int64_t> ids, targets;
  bool operator==(const Sequence&) const = default;
};

Sequence sequence(const Task& task, uint64_t seed, Split split, uint64_t number) {
  Sequence out{std::vector<int64_t>(task.length, -7), std::vector<int64_t>(task.length, -7)};
  draw(task, seed, split, number, out.ids, out.targets);
  return out;
}

// Everything the task promises, read off the sequence alone.
void check_mqar(const Sequence& s, int64_t low, int64_t high, int64_t vocab, int64_t gap,
                bool padded) {
  const auto asked = std::ranges::count_if(s.targets, [](int64_t t) { return t != kNotScored; });
  ASSERT_GE(asked, low);
  ASSERT_LE(asked, high);
  std::map<int64_t, int64_t> value_of;
  for (int64_t p = 0; p < asked; ++p) {
    ASSERT_GT(s.ids[2 * p], 0);
    ASSERT_LT(s.ids[2 * p], vocab / 2);
    ASSERT_GE(s.ids[2 * p + 1], vocab / 2);
    ASSERT_LT(s.ids[2 * p + 1], vocab);
    ASSERT_TRUE(value_of.emplace(s.ids[2 * p], s.ids[2 * p + 1]).second) << "a key twice";
  }
  std::set<int64_t> questions;
  for (int64_t t = 0; t < std::ssize(s.ids); ++t) {
    if (s.targets[t] == kNotScored) {
      const int64_t filler = padded ? 0 : std::max(s.ids[t], vocab / 2);
      ASSERT_TRUE(t < 2 * asked || s.ids[t] == filler) << t;
      continue;
    }
    ASSERT_GE(t, 2 * asked + gap);
    ASSERT_EQ((t - gap) % 2, 0);
    ASSERT_EQ(s.targets[t], value_of.at(s.ids[t]));
    ASSERT_TRUE(questions.insert(s.ids[t]).second) << "asked twice";
  }
  ASSERT_EQ(std::ssize(questions), asked);
}

TEST(Mqar, EverySequenceKeepsTheRules) {
  for (uint64_t i = 0; i < 200; ++i) {
    check_mqar(sequence(parse_task("mqar:pairs=8,length=64,vocab=128"), 3, Split::train, i), 8, 8,
               128, 0, false);
    check_mqar(sequence(parse_task("mqar:pairs=2..5,length=61,vocab=13,gap=21,fill=pad"), 3,
                        Split::test, i),
               2, 5, 13, 21, true);
    check_mqar(sequence(parse_task("mqar:pairs=3,length=17,vocab=9,gap=5"), 3, Split::train, i), 3,
               3, 9, 5, false);
  }
}

TEST(Mqar, ARangeMixesAllCounts) {
  const auto task = parse_task("mqar:pairs=4..6,length=64");
  std::map<int64_t, int64_t> counts;
  for (uint64_t i = 0; i < 600; ++i) {
    const auto s = sequence(task, 1, Split::train, i);
    ++counts[std::ranges::count_if(s.targets, [](int64_t t) { return t != kNotScored; })];
  }
  ASSERT_EQ(counts.size(), 3u);
  for (const auto& [pairs, count] : counts) EXPECT_NEAR(count, 200, 60) << pairs;
}

// p ∝ (i + 1)^(a - 1): with one pair, the slot's frequency is the weight itself.
TEST(Mqar, QuestionsComeSoonMoreOften) {
  const auto task = parse_task("mqar:pairs=1,length=18,vocab=64");
  std::vector<double> seen(8), expected;
  const int64_t n = 20000;
  for (int64_t i = 0; i < n; ++i) {
    const auto s = sequence(task, 1, Split::train, i);
    const auto at = std::ranges::find_if(s.targets, [](int64_t t) { return t != kNotScored; });
    seen[(at - s.targets.begin() - 2) / 2] += 1.0 / n;
  }
  double sum = 0;
  for (int i = 0; i < 8; ++i) sum += std::pow(i + 1, -0.99);
  for (int i = 0; i < 8; ++i) EXPECT_NEAR(seen[i], std::pow(i + 1, -0.99) / sum, 0.012) << i;
}

TEST(Mqar, TheSameSeedTheSameSequence) {
  const auto task = parse_task("mqar:pairs=4,length=32");
  EXPECT_EQ(sequence(task, 5, Split::train, 7), sequence(task, 5, Split::train, 7));
  EXPECT_NE(sequence(task, 5, Split::train, 7), sequence(task, 6, Split::train, 7));
  EXPECT_NE(sequence(task, 5, Split::train, 7), sequence(task, 5, Split::train, 8));
  EXPECT_NE(sequence(task, 5, Split::train, 7), sequence(task, 5, Split::test, 7));
}

TEST(Mqar, TrainAndTestShareNothing) {
  const auto task = parse_task("mqar:pairs=4,length=32,vocab=64");
  std::set<std::vector<int64_t>> trained;
  for (uint64_t i = 0; i < 2000; ++i) trained.insert(sequence(task, 0, Split::train, i).ids);
  EXPECT_EQ(trained.size(), 2000u);
  for (uint64_t i = 0; i < 2000; ++i)
    EXPECT_FALSE(trained.contains(sequence(task, 0, Split::test, i).ids));
}

// A sequence is part of the interface: what was trained on must stay what it was.
TEST(Mqar, OneSequenceByHeart) {
  const auto s = sequence(parse_task("mqar:pairs=2,length=12,vocab=16"), 0, Split::train, 0);
  std::string text;
  for (size_t t = 0; t < s.ids.size(); ++t) text += fmt::format("{}/{} ", s.ids[t], s.targets[t]);
  EXPECT_EQ(text,
            "4/-100 12/-100 2/-100 12/-100 4/12 12/-100 2/12 14/-100 9/-100 10/-100 8/-100 "
            "14/-100 ");
}

std::string refusal(const std::string& text) {
  try {
    parse_task(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Task, TextIsComplete) {
  EXPECT_EQ(parse_task("mqar:length=128,pairs=4..24").text,
            "mqar:pairs=4..24,length=128,vocab=8192,gap=0,fill=random");
}

TEST(Task, ImpossibleOnesAreRefusedWithWhatWouldFit) {
  EXPECT_EQ(refusal("mqar:pairs=32,length=100,gap=4"),
            "task mqar: length must be at least 4 x pairs + gap = 132, got 100; length=132 "
            "or pairs=24 would fit");
  EXPECT_NE(refusal("mqar:pairs=8,length=64,vocab=16").find("at least 18 is needed"),
            std::string::npos);
}

TEST(Task, MistakesAreNamed) {
  EXPECT_NE(refusal("mqa").find("must be one of mqar"), std::string::npos);
  EXPECT_NE(refusal("mqar").find("pairs must be given"), std::string::npos);
  EXPECT_NE(refusal("mqar:pairs=4").find("length must be given"), std::string::npos);
  EXPECT_NE(refusal("mqar:pairs=4,length=64,colour=1").find("'colour' is not known"),
            std::string::npos);
  EXPECT_NE(refusal("mqar:pairs=4,pairs=5,length=64").find("once"), std::string::npos);
  EXPECT_NE(refusal("mqar:pairs=9..4,length=64").find("from low to high"), std::string::npos);
  EXPECT_NE(refusal("mqar:pairs=4,length=6x").find("whole number"), std::string::npos);
  EXPECT_NE(refusal("mqar:pairs=4,length=64,fill=none").find("random or pad"), std::string::npos);
  EXPECT_NE(refusal("mqar:pairs").find("key=value"), std::string::npos);
}

}  // namespace
}  // namespace bmojo
