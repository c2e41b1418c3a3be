#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/data/sequence.h"

namespace bmojo::data {
namespace {

using test::refusal;
using test::Sequence;
using test::sequence;
using Motif = std::vector<int64_t>;

struct Rules {
  int64_t low, high, vocab, gap, motif;
};

struct Question {
  int64_t place;
  Motif key, value;
};

// The questions, read off what is due: the key is the run of key tokens before its answer.
std::vector<Question> questions_of(const Sequence& s, int64_t vocab) {
  std::vector<Question> questions;
  for (int64_t t = 0; t < std::ssize(s.ids); ++t) {
    if (s.targets[t] == kNotScored) continue;
    if (s.ids[t] < vocab / 2) {  // the last token of a key
      int64_t begin = t;
      while (begin > 0 && s.ids[begin - 1] < vocab / 2) --begin;
      questions.push_back({begin, Motif(s.ids.begin() + begin, s.ids.begin() + t + 1), {}});
    }
    questions.back().value.push_back(s.targets[t]);
  }
  return questions;
}

void check_value(const Sequence& s, const Question& question, const Rules& rules) {
  const auto& value = question.value;
  ASSERT_GE(std::ssize(question.key), 1);
  ASSERT_LE(std::ssize(question.key), rules.motif);
  ASSERT_LE(std::ssize(value), rules.motif);
  for (const auto id : value) ASSERT_TRUE(id >= rules.vocab / 2 && id < rules.vocab);
  // Each token stands one place behind where it is due.
  const int64_t answer = question.place + std::ssize(question.key);
  ASSERT_TRUE(std::ranges::equal(value, std::span(s.ids).subspan(answer, value.size())));
}

void check_keys(const std::vector<Question>& questions) {
  for (const auto& a : questions)
    for (const auto& b : questions) {
      if (&a == &b || a.key.size() > b.key.size()) continue;
      ASSERT_FALSE(std::equal(a.key.begin(), a.key.end(), b.key.begin())) << "a prefix";
      ASSERT_FALSE(std::equal(a.key.rbegin(), a.key.rend(), b.key.rbegin())) << "a suffix";
    }
}

// Everything the task promises, read off the sequence alone.
void check(const Sequence& s, const Rules& rules) {
  const auto questions = questions_of(s, rules.vocab);
  ASSERT_GE(std::ssize(questions), rules.low);
  ASSERT_LE(std::ssize(questions), rules.high);
  check_keys(questions);
  std::map<Motif, Motif> value_of;
  int64_t front = 0, num_key_tokens = 0;
  for (const auto& each : questions) {
    check_value(s, each, rules);
    value_of[each.key] = each.value;
    front += std::ssize(each.key) + std::ssize(each.value);
    num_key_tokens += std::ssize(each.key);
  }
  // The front is exactly the pairs that are asked later.
  for (int64_t t = 0; t < front;) {
    Motif key;
    while (s.ids[t] < rules.vocab / 2) key.push_back(s.ids[t++]);
    ASSERT_TRUE(value_of.contains(key));
    const auto value = value_of.extract(key).mapped();
    ASSERT_TRUE(std::ranges::equal(value, std::span(s.ids).subspan(t, value.size())));
    t += std::ssize(value);
  }
  ASSERT_TRUE(value_of.empty());
  for (const auto& each : questions) {
    ASSERT_GE(each.place, front + rules.gap);
    ASSERT_EQ((each.place - front - rules.gap) % (2 * rules.motif), 0);
  }
  for (const auto id : s.ids) ASSERT_TRUE(id > 0 && id < rules.vocab);
  ASSERT_EQ(std::ranges::count_if(s.ids, [&](int64_t id) { return id < rules.vocab / 2; }),
            2 * num_key_tokens)
      << "key tokens stand in pairs and questions alone";
}

TEST(FuzzyMqar, EverySequenceKeepsTheRules) {
  const std::pair<std::string, Rules> cases[] = {
      {"fuzzy-mqar:pairs=8,length=128,vocab=128", {8, 8, 128, 0, 3}},
      {"fuzzy-mqar:pairs=2..5,length=99,vocab=23,gap=7,motif=4", {2, 5, 23, 7, 4}},
      {"fuzzy-mqar:pairs=6,length=80,vocab=26,gap=3,motif=2", {6, 6, 26, 3, 2}},
      {"fuzzy-mqar:pairs=3,length=17,vocab=14,gap=5,motif=1", {3, 3, 14, 5, 1}},
  };
  for (const auto& [text, rules] : cases)
    for (uint64_t i = 0; i < 300; ++i)
      check(sequence(parse_task(text), 3, i % 2 == 0 ? Split::train : Split::test, i), rules);
}

// 3,000 keys and values: a third each, within five standard deviations. With 8,192 ids hardly a key
// is ambiguous, so its length is as it was drawn.
TEST(FuzzyMqar, LengthsFromOneToMotifAreAsLikely) {
  const auto task = parse_task("fuzzy-mqar:pairs=10,length=128");
  std::map<size_t, double> keys, values;
  for (uint64_t i = 0; i < 300; ++i)
    for (const auto& each : questions_of(sequence(task, 1, Split::train, i), 8192)) {
      keys[each.key.size()] += 1.0 / 3000;
      values[each.value.size()] += 1.0 / 3000;
    }
  for (size_t n = 1; n <= 3; ++n) {
    EXPECT_NEAR(keys[n], 1.0 / 3, 0.043) << n;
    EXPECT_NEAR(values[n], 1.0 / 3, 0.043) << n;
  }
}

// One token is not enough to know a key by: with few ids, most sequences have two keys that share
// their first.
TEST(FuzzyMqar, KeysShareTokens) {
  const auto task = parse_task("fuzzy-mqar:pairs=8,length=128,vocab=40");
  int64_t shared = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    std::set<int64_t> first;
    const auto questions = questions_of(sequence(task, 1, Split::train, i), 40);
    for (const auto& each : questions) first.insert(each.key.front());
    shared += first.size() < questions.size();
  }
  EXPECT_GT(shared, 100);
}

TEST(FuzzyMqar, ImpossibleOnesAreRefusedWithWhatWouldFit) {
  EXPECT_EQ(refusal("fuzzy-mqar:pairs=16,length=128,gap=10"),
            "task fuzzy-mqar: length must be at least 4 x motif x pairs + gap = 202, got 128; "
            "length=202 or pairs=9 would fit");
  EXPECT_EQ(refusal("fuzzy-mqar:pairs=8,length=256,vocab=33"),
            "task fuzzy-mqar: vocab must have two key tokens for each pair, got 33 for 8 pairs; at "
            "least 34 is needed");
  EXPECT_EQ(refusal("fuzzy-mqar:pairs=2,length=256,motif=0"),
            "task fuzzy-mqar: motif must be a whole number from 1 to 64, got '0'");
  for (const auto* exact :
       {"pairs=16,length=202,gap=10", "pairs=9,length=128,gap=10", "pairs=8,length=96,vocab=34"})
    EXPECT_EQ(refusal(std::string("fuzzy-mqar:") + exact), "");
}

}  // namespace
}  // namespace bmojo::data
