#include <gtest/gtest.h>

#include "tests/data/sequence.h"

namespace bmojo::data {
namespace {

using test::places_due;
using test::refusal;
using test::sequence;

// Everything the task promises, read off the sequence alone.
void check(const test::Sequence& s, int64_t tokens, int64_t vocab) {
  const int64_t first_marker = std::ssize(s.ids) - tokens;
  std::vector<int64_t> content, answers;
  for (int64_t t = 0; t < first_marker; ++t)
    if (s.ids[t] != 0) content.push_back(s.ids[t]);
  for (int64_t t = first_marker; t < std::ssize(s.ids); ++t) {
    ASSERT_EQ(s.ids[t], vocab - 1) << "a marker";
    answers.push_back(s.targets[t]);
  }
  for (const auto id : content) ASSERT_TRUE(id > 0 && id < vocab - 1) << id;
  ASSERT_EQ(std::ssize(content), tokens);
  ASSERT_EQ(answers, content) << "in order";
  ASSERT_EQ(std::ssize(places_due(s)), tokens);
}

TEST(SelectiveCopy, EverySequenceKeepsTheRules) {
  for (uint64_t i = 0; i < 300; ++i) {
    check(sequence(parse_task("selective-copy"), 3, Split::train, i), 16, 16);
    check(sequence(parse_task("selective-copy:length=29,tokens=5,vocab=4"), 3, Split::test, i), 5,
          4);
    check(sequence(parse_task("selective-copy:length=8,tokens=4"), 3, Split::test, i), 4, 16);
  }
}

// Each of 12 places holds content with probability 4/12, each of 6 tokens is as likely. Of 10,000
// sequences, five standard deviations.
TEST(SelectiveCopy, EveryPlaceAndEveryTokenIsAsLikely) {
  const auto task = parse_task("selective-copy:length=16,tokens=4,vocab=8");
  std::vector<double> places(12), tokens(8);
  for (uint64_t i = 0; i < 10000; ++i) {
    const auto s = sequence(task, 1, Split::train, i);
    for (int64_t t = 0; t < 12; ++t) places[t] += s.ids[t] != 0 ? 1e-4 : 0;
    for (int64_t t = 12; t < 16; ++t) tokens.at(s.targets[t]) += 1e-4 / 4;
  }
  for (const auto share : places) EXPECT_NEAR(share, 1.0 / 3, 0.024);
  for (int64_t id = 1; id < 7; ++id) EXPECT_NEAR(tokens[id], 1.0 / 6, 0.01) << id;
}

TEST(SelectiveCopy, ImpossibleOnesAreRefusedWithWhatWouldFit) {
  EXPECT_EQ(refusal("selective-copy:length=31"),
            "task selective-copy: length must be at least 2 x tokens = 32, got 31; length=32 or "
            "tokens=15 would fit");
  EXPECT_EQ(refusal("selective-copy:length=32"), "");
  EXPECT_EQ(refusal("selective-copy:vocab=3"),
            "task selective-copy: vocab must be a whole number from 4 to 1073741824, got '3'");
  EXPECT_EQ(refusal("selective-copy:tokens=0"),
            "task selective-copy: tokens must be a whole number from 1 to 1073741824, got '0'");
}

}  // namespace
}  // namespace bmojo::data
