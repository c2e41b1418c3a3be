// Answers in words: how they are measured, against what Python makes of them, and how they are
// written, against generate().

#include "bmojo/eval/suite_answer.h"

#include <gtest/gtest.h>

#include <map>

#include "bmojo/eval/greedy.h"
#include "bmojo/eval/prompt.h"
#include "tests/eval/native.h"

namespace bmojo::eval {
namespace {

// What SQuAD's normalisation in Python makes of each.
TEST(SuiteAnswer, WordsAreThoseOfSquad) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(answer_words(" The cat's  a-b, AN_an \xc3\x89t\xc3\xa9 the.\n"),
            (Words{"cats", "ab", "anan", "\xc3\xa9t\xc3\xa9"}));
  // A quotation mark that is not ASCII's stays, and ends a word: "the’s" loses its article.
  EXPECT_EQ(answer_words("the\xe2\x80\x99s theme 7a a7"),
            (Words{"\xe2\x80\x99s", "theme", "7a", "a7"}));
  EXPECT_EQ(answer_words("a, the"), Words{});
}

TEST(SuiteAnswer, F1IsThatOfTheBestRightAnswer) {
  const auto f1 = [](std::string_view text, std::vector<std::string> golds) {
    return score_f1(text, golds);
  };
  EXPECT_DOUBLE_EQ(f1("The red fox!", {"red fox"}), 1);
  EXPECT_DOUBLE_EQ(f1("red red fox", {"red dog cat"}), 1. / 3);  // p = r = 1/3
  EXPECT_DOUBLE_EQ(f1("red", {"dog", "red dog", "red dog cat"}), 2. / 3);
  EXPECT_DOUBLE_EQ(f1("", {"red"}), 0);
  EXPECT_DOUBLE_EQ(f1("the", {"a"}), 0);
  EXPECT_DOUBLE_EQ(score_qasper(" ", std::vector<std::string>{"unanswerable."}), 1);
  EXPECT_DOUBLE_EQ(score_qasper("x", std::vector<std::string>{"unanswerable."}), 0);
}

TEST(SuiteAnswer, TheShareThatIsContained) {
  const std::vector<std::string> golds = {"AB", "\xc3\xa9", "c d", "x"};
  EXPECT_DOUBLE_EQ(score_contained("cab C D \xc3\x89", golds), 0.75);
  EXPECT_DOUBLE_EQ(score_contained("", golds), 0);
}

// Letters from A on.
struct Letters : data::Tokenizer {
  explicit Letters(int64_t size) : size_(size) {}
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(c - 'A');
    return ids;
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const auto id : ids) text += static_cast<char>('A' + id);
    return text;
  }
  // As SentencePiece has it: a blank that a piece brings along is left out where a text begins.
  std::string decode_behind(int32_t id) const override {
    return (id % 2 == 0 ? " " : "") + decode({&id, 1});
  }
  int64_t vocab_size() const override { return size_; }
  int32_t end_of_document() const override { return 2; }
  const std::string& name() const override { return name_; }
  size_t find_cut(std::string_view text, size_t) const override { return text.size(); }
  std::vector<int32_t> encode_rest(std::string_view text) const override { return encode(text); }

 private:
  int64_t size_;
  std::string name_ = "bpe";
};

TEST(Greedy, ManyTextsAreWhatEachIsAlone) {
  std::map<std::string, int> ends;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const test::Draw draw(seed);
    const auto model = test::language_model(draw, 1);
    // The weights may have ids that the tokenizer does not have.
    const Letters tokenizer(draw.config.vocab_size - static_cast<int64_t>(seed % 2));
    const Until until{.max_tokens = 12, .stop = {"AB", "D"}, .ends = {2}};
    std::vector<Continuation> texts;
    std::vector<Generated> expected;
    for (uint64_t i = 0; i < 5; ++i) {
      texts.push_back(begin(*model));
      const auto length = static_cast<int64_t>(1 + 7 * i);
      read_prompt(*model, test::random_ids(draw.config, length, seed + i), texts.back());
      auto alone = texts.back().copy();
      expected.push_back(generate(*model, alone,
                                  {.max_tokens = until.max_tokens,
                                   .sampling = {.temperature = 0},
                                   .stop = until.stop,
                                   .ends = until.ends},
                                  &tokenizer));
    }
    const auto got = write_greedily(*model, texts, until, tokenizer);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].ids, expected[i].ids) << draw.text();
      EXPECT_EQ(got[i].logprobs, expected[i].logprobs) << draw.text();
      EXPECT_EQ(got[i].text, expected[i].text) << draw.text();
      EXPECT_EQ(got[i].finish, expected[i].finish) << draw.text();
      ++ends[got[i].finish];
    }
  }
  for (const auto* end : {"length", "stop", "eos"}) EXPECT_GT(ends[end], 2) << end;
}

}  // namespace
}  // namespace bmojo::eval
