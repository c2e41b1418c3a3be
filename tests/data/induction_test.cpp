#include <gtest/gtest.h>

#include <set>

#include "tests/data/sequence.h"

namespace bmojo::data {
namespace {

using test::places_due;
using test::refusal;
using test::sequence;

// Where the special token stands first; everything the task promises is read off the sequence.
int64_t check(const test::Sequence& s, int64_t vocab) {
  const int64_t last = std::ssize(s.ids) - 1;
  EXPECT_EQ(places_due(s), std::vector{last});
  EXPECT_EQ(std::ranges::count(s.ids, 0), 2) << "asked once, after it stood once";
  EXPECT_EQ(s.ids[last], 0);
  const int64_t place = std::ranges::find(s.ids, 0) - s.ids.begin();
  EXPECT_LT(place + 1, last);
  EXPECT_EQ(s.targets[last], s.ids[place + 1]);
  EXPECT_TRUE(std::ranges::all_of(s.ids, [&](int64_t id) { return id >= 0 && id < vocab; }));
  return place;
}

TEST(Induction, EverySequenceKeepsTheRules) {
  for (uint64_t i = 0; i < 300; ++i) {
    check(sequence(parse_task("induction"), 3, Split::train, i), 16);
    check(sequence(parse_task("induction:length=3,vocab=3"), 3, Split::test, i), 3);
    check(sequence(parse_task("induction:length=64,vocab=5"), 3, Split::test, i), 5);
  }
}

// Ten places and five answers, each as likely: of 10,000 sequences, five standard deviations.
TEST(Induction, EveryPlaceAndEveryAnswerIsAsLikely) {
  const auto task = parse_task("induction:length=12,vocab=6");
  std::vector<double> places(10), answers(6);
  for (uint64_t i = 0; i < 10000; ++i) {
    const auto s = sequence(task, 1, Split::train, i);
    places.at(check(s, 6)) += 1e-4;
    answers.at(s.targets.back()) += 1e-4;
  }
  for (const auto share : places) EXPECT_NEAR(share, 0.1, 0.015);
  for (int64_t id = 1; id < 6; ++id) EXPECT_NEAR(answers[id], 0.2, 0.02) << id;
}

TEST(Induction, AMillionTokensAreOneSequence) {
  const auto task = parse_task("induction:length=1048576");
  std::set<int64_t> places;
  for (uint64_t i = 0; i < 3; ++i)
    places.insert(check(sequence(task, 1, Split::test, i), 16) * 16 / task.length);
  EXPECT_GT(places.size(), 1u) << "spread over the length";
}

TEST(Induction, ImpossibleOnesAreRefused) {
  EXPECT_EQ(refusal("induction:length=2"),
            "task induction: length must be a whole number from 3 to 1073741824, got '2'");
  EXPECT_EQ(refusal("induction:vocab=2"),
            "task induction: vocab must be a whole number from 3 to 1073741824, got '2'");
}

}  // namespace
}  // namespace bmojo::data
