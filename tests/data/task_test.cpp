#include "bmojo/data/task.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/data/sequence.h"

namespace bmojo::data {
namespace {

using test::refusal;
using test::sequence;

const auto* const kNames = "mqar, noisy-mqar, fuzzy-mqar, induction, selective-copy";

// One of each, with sequences too long to meet by chance.
class EveryTask : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(One, EveryTask,
                         testing::Values("mqar:pairs=4,length=32,vocab=64",
                                         "mqar:pairs=4,length=64,vocab=64,span=24",
                                         "noisy-mqar:pairs=4,length=40,vocab=64",
                                         "fuzzy-mqar:pairs=3,length=40,vocab=64", "induction",
                                         "selective-copy"),
                         [](const auto& info) { return std::to_string(info.index); });

TEST_P(EveryTask, SequencesDependOnSeedSplitAndNumber) {
  const auto task = parse_task(GetParam());
  EXPECT_EQ(sequence(task, 5, Split::train, 7), sequence(task, 5, Split::train, 7));
  EXPECT_NE(sequence(task, 5, Split::train, 7), sequence(task, 6, Split::train, 7));
  EXPECT_NE(sequence(task, 5, Split::train, 7), sequence(task, 5, Split::train, 8));
  EXPECT_NE(sequence(task, 5, Split::train, 7), sequence(task, 5, Split::test, 7));
}

// Whatever was drawn before, in whatever order, into whatever stood there: also from a task that
// was parsed anew from its text.
TEST_P(EveryTask, SequencesDependOnNothingElse) {
  const auto task = parse_task(GetParam()), again = parse_task(task.text);
  std::vector<int64_t> ids(8 * task.length), targets(8 * task.length, 3),
      sources(8 * task.length, 3);
  const auto part = [&](std::vector<int64_t>& all, int64_t i) {
    return std::span(all).subspan(i * task.length, task.length);
  };
  for (const int64_t i : {5, 2, 7, 0, 1, 6, 4, 3})
    draw(again, 9, Split::train, 100 + i, {part(ids, i), part(targets, i), part(sources, i)});
  for (int64_t i = 0; i < 8; ++i) {
    const auto alone = sequence(task, 9, Split::train, 100 + i);
    EXPECT_TRUE(std::equal(alone.ids.begin(), alone.ids.end(), ids.begin() + i * task.length));
    EXPECT_TRUE(
        std::equal(alone.targets.begin(), alone.targets.end(), targets.begin() + i * task.length));
    EXPECT_TRUE(std::ranges::equal(alone.sources, part(sources, i)));
  }
}

TEST_P(EveryTask, TrainAndTestShareNothing) {
  const auto task = parse_task(GetParam());
  std::set<std::vector<int64_t>> trained;
  for (uint64_t i = 0; i < 2000; ++i) trained.insert(sequence(task, 0, Split::train, i).ids);
  EXPECT_EQ(trained.size(), 2000u);
  for (uint64_t i = 0; i < 2000; ++i)
    EXPECT_FALSE(trained.contains(sequence(task, 0, Split::test, i).ids));
}

// A sequence is part of the interface: what was trained on must stay what it was.
TEST(Task, SequencesByHeart) {
  EXPECT_EQ(test::digest_of("mqar:pairs=2..8,length=128,span=64,gap=9"), "6ccb9fd765434b67");
  EXPECT_EQ(test::digest_of("noisy-mqar:pairs=2..8,length=128,gap=9"), "d5eedd74b64231ad");
  EXPECT_EQ(test::digest_of("fuzzy-mqar:pairs=2..8,length=128,vocab=64,gap=9"), "2761a971162b3c3c");
  EXPECT_EQ(test::digest_of("induction"), "8a1aebedf5fcf647");
  EXPECT_EQ(test::digest_of("selective-copy"), "edb995ef1b9b6b01");
}

TEST(Task, TextIsComplete) {
  for (const auto& [given, text] : std::initializer_list<std::pair<const char*, const char*>>{
           {"mqar:length=128,pairs=4..24",
            "mqar:pairs=4..24,length=128,vocab=8192,gap=0,fill=random"},
           {"mqar:length=128,pairs=8,span=0064",
            "mqar:pairs=8,length=128,vocab=8192,span=64,gap=0,fill=random"},
           {"noisy-mqar:length=128,pairs=8",
            "noisy-mqar:pairs=8,length=128,vocab=8192,gap=0,noise=0.2,noise_vocab=16"},
           {"noisy-mqar:length=128,pairs=8,noise=.50",
            "noisy-mqar:pairs=8,length=128,vocab=8192,gap=0,noise=0.5,noise_vocab=16"},
           {"fuzzy-mqar:length=128,pairs=8",
            "fuzzy-mqar:pairs=8,length=128,vocab=8192,gap=0,motif=3"},
           {"induction", "induction:length=256,vocab=16"},
           {"selective-copy", "selective-copy:length=256,tokens=16,vocab=16"}}) {
    EXPECT_EQ(parse_task(given).text, text);
    EXPECT_EQ(parse_task(text).text, text);
  }
}

// The other tasks' refusals stand in their own tests.
TEST(Task, MistakesAreNamed) {
  EXPECT_EQ(refusal("mqa"), fmt::format("task: must be one of {}, got 'mqa'", kNames));
  EXPECT_EQ(refusal("mqar:pairs=4,pairs=5,length=64"),
            "task mqar: 'pairs' must be given once, got it twice");
  EXPECT_EQ(refusal("mqar:pairs=9..4,length=64"),
            "task mqar: pairs must be a range from low to high, got '9..4'");
  EXPECT_EQ(refusal("mqar:pairs=4,length=64,fill=none"),
            "task mqar: fill must be random or pad, got 'none'");
  EXPECT_EQ(refusal("mqar:pairs"), "task mqar: must be given as key=value,…, got 'pairs'");
  for (const std::string name : {"mqar", "noisy-mqar", "fuzzy-mqar"}) {
    const auto text = name + ":pairs=4";
    EXPECT_EQ(refusal(name), fmt::format("task {}: pairs must be given, got none", name));
    EXPECT_EQ(refusal(text), fmt::format("task {}: length must be given, got none", name));
  }
}

TEST(Task, UnknownKeysAndNumbersThatAreNotWholeAreNamed) {
  for (const std::string name : {"mqar:pairs=4,", "noisy-mqar:pairs=4,", "fuzzy-mqar:pairs=4,",
                                 "induction:", "selective-copy:"}) {
    const auto task = name.substr(0, name.find(':'));
    EXPECT_EQ(refusal(name + "length=64,colour=1"),
              fmt::format("task {}: key 'colour' is not known", task));
    for (const std::string length : {"6x", "64.5", "", "-1", "99999999999999999999"})
      EXPECT_TRUE(refusal(name + "length=" + length)
                      .starts_with(fmt::format("task {}: length must be a whole number", task)))
          << length;
  }
  for (const std::string key : {"span", "gap"})
    EXPECT_TRUE(refusal("mqar:pairs=4,length=64," + key + "=1.5")
                    .starts_with("task mqar: " + key + " must be a whole number"));
}

TEST(Task, ExamplesOfAllFitAScreen) {
  for (const auto* name : {"mqar", "noisy-mqar", "fuzzy-mqar", "induction", "selective-copy"}) {
    const auto task = parse_task(with_example_keys(name));
    EXPECT_LE(task.length, 96) << name;
    EXPECT_FALSE(task.legend.empty()) << name;
  }
}

}  // namespace
}  // namespace bmojo::data
