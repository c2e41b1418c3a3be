// Log-likelihoods from a context that is read once, against whole texts scored one by one; and what
// becomes of a suite's texts.

#include "bmojo/eval/suite.h"

#include <gtest/gtest.h>

#include <cmath>

#include "bmojo/base/error.h"
#include "bmojo/base/random.h"
#include "bmojo/data/python_text.h"
#include "bmojo/eval/likelihood.h"
#include "bmojo/eval/suite_ask.h"
#include "bmojo/eval/suite_score.h"
#include "bmojo/eval/suite_text.h"
#include "bmojo/eval/suite_tokens.h"
#include "tests/eval/native.h"

namespace bmojo::eval {
namespace {

using Group = std::vector<Asked>;

// Groups as suites have them: one context for all choices, contexts that differ at their end or end
// sooner, choices that begin alike, one choice alone, a context of one token.
std::vector<Group> random_groups(const model::Config& config, uint64_t seed) {
  base::Random random({seed, 81});
  const auto below = [&](uint64_t n) { return static_cast<size_t>(random.below(n)); };
  std::vector<Group> groups;
  for (uint64_t g = 0; g < 6; ++g) {
    const auto context = test::random_ids(config, static_cast<int64_t>(1 + below(40)), seed + g);
    Group group(1 + below(4), Asked{context, {}});
    for (auto& asked : group) {
      asked.continuation =
          test::random_ids(config, static_cast<int64_t>(1 + below(9)), seed + 100 * (1 + below(3)));
      if (asked.context.size() > 1 && below(4) == 0) asked.context.pop_back();
      if (below(3) == 0)
        asked.context.back() =
            static_cast<int64_t>(below(static_cast<uint64_t>(config.vocab_size)));
    }
    groups.push_back(group);
  }
  return groups;
}

Likelihood whole_text(const LanguageModel& model, const Asked& asked) {
  Ids ids = asked.context;
  ids.insert(ids.end(), asked.continuation.begin(), asked.continuation.end());
  const auto scores = score(model, {&ids, 1}, {.chunk = std::ssize(ids)})[0];
  Likelihood out;
  for (size_t i = asked.context.size() - 1; i < scores.own.size(); ++i)
    out += {static_cast<double>(scores.own[i]), scores.argmax[i] == ids[i + 1], 1};
  return out;
}

void expect_equal(const Likelihood& got, const Likelihood& expected, const std::string& text) {
  EXPECT_EQ(got.log_p, expected.log_p) << text;
  EXPECT_EQ(got.is_greedy, expected.is_greedy) << text;
  EXPECT_EQ(got.num_tokens, expected.num_tokens) << text;
}

TEST(Likelihood, IsThatOfTheWholeTextBitByBit) {
  int64_t num_greedy = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const test::Draw draw(seed);
    const auto model = test::language_model(draw, 1);
    const auto groups = random_groups(draw.config, seed);
    const auto got = likelihoods(*model, groups);
    ASSERT_EQ(got.size(), groups.size());
    for (size_t g = 0; g < groups.size(); ++g) {
      ASSERT_EQ(got[g].size(), groups[g].size());
      for (size_t i = 0; i < groups[g].size(); ++i) {
        const auto expected = whole_text(*model, groups[g][i]);
        expect_equal(got[g][i], expected, draw.text());
        EXPECT_EQ(got[g][i].num_tokens, std::ssize(groups[g][i].continuation));
        num_greedy += got[g][i].is_greedy;
      }
    }
  }
  EXPECT_GT(num_greedy, 2);
}

TEST(Likelihood, BatchesAndThreadsChangeNoBit) {
  for (uint64_t seed = 50; seed < 70; ++seed) {
    const test::Draw draw(seed);
    const auto groups = random_groups(draw.config, seed);
    const auto whole = likelihoods(*test::language_model(draw, 2), groups);
    const auto model = test::language_model(draw, 1);
    for (size_t g = 0; g < groups.size(); ++g) {
      const auto alone = likelihoods(*model, std::span(groups).subspan(g, 1))[0];
      ASSERT_EQ(alone.size(), whole[g].size());
      for (size_t i = 0; i < alone.size(); ++i) expect_equal(alone[i], whole[g][i], draw.text());
    }
  }
}

TEST(Likelihood, ACommonContextIsReadOnce) {
  const test::Draw draw(3);
  const auto model = test::language_model(draw, 1);
  const auto context = test::random_ids(draw.config, 700, 1);
  Group group;
  for (uint64_t i = 0; i < 4; ++i)
    group.push_back({context, test::random_ids(draw.config, 5, 10 + i)});
  likelihoods(*model, {&group, 1});
  // The last token of the context stands before the choices; the last one of a choice is not read.
  EXPECT_EQ(model->num_read(), 699 + 4 * (1 + 4));
}

// Behind a beginning that was read before, whatever is asked behind it.
TEST(Likelihood, ABeginningChangesNoBit) {
  for (uint64_t seed = 80; seed < 100; ++seed) {
    const test::Draw draw(seed);
    const auto model = test::language_model(draw, 1);
    auto groups = random_groups(draw.config, seed);
    const auto ids = test::random_ids(draw.config, static_cast<int64_t>(1 + seed), seed);
    for (auto& group : groups)
      for (auto& [context, continuation] : group)
        context.insert(context.begin(), ids.begin(), ids.end());
    const auto expected = likelihoods(*model, groups);
    const auto beginning = read_beginning(*model, ids);
    const auto got = likelihoods(*model, groups, {}, &beginning);
    for (size_t g = 0; g < groups.size(); ++g)
      for (size_t i = 0; i < groups[g].size(); ++i)
        expect_equal(got[g][i], expected[g][i], draw.text());
  }
}

TEST(Likelihood, WhatCannotBeAskedIsRefused) {
  const test::Draw draw(3);
  const auto model = test::language_model(draw, 1);
  for (const Group& group : {Group{{{}, {1}}}, Group{{{1}, {}}}})
    EXPECT_THROW(likelihoods(*model, {&group, 1}), base::Error);
}

class Questions : public ::testing::Test {
 protected:
  std::unique_ptr<data::Tokenizer> bytes_ = data::load_tokenizer("bytes");
  model::Config config_;

  Asked ask(const std::string& context, const std::string& continuation) {
    const Item item{.where = "F:1", .choices = {{context, continuation}}};
    return questions(item, Question::choice, config_, *bytes_)[0];
  }
  static Ids ids(std::string_view text) { return {text.begin(), text.end()}; }
};

TEST_F(Questions, WhiteSpaceBelongsToTheContinuation) {
  EXPECT_EQ(ask("ab", " c").context, ids("ab"));
  EXPECT_EQ(ask("ab", " c").continuation, ids(" c"));
  EXPECT_EQ(ask("ab \n", " c").context, ids("ab"));
  EXPECT_EQ(ask("ab \n", " c").continuation, ids(" \n c"));
}

TEST_F(Questions, ATextWithoutContextStandsBehindTheFirstToken) {
  config_.bos_token_id = config_.eos_token_id = -1;
  EXPECT_EQ(ask("", " c").context, Ids{256});
  config_.eos_token_id = 7;
  EXPECT_EQ(ask("", " c").context, Ids{7});
  config_.bos_token_id = 'x';
  EXPECT_EQ(ask("", " c").context, Ids{'x'});
  EXPECT_EQ(ask("", " c").continuation, ids(" c"));
  // It is not put there twice.
  EXPECT_EQ(ask("", "xc").continuation, ids("c"));
}

// As lm-evaluation-harness cuts [0 … 9] in windows of 4.
TEST_F(Questions, DocumentsAreCutIntoWindows) {
  config_.bos_token_id = 9;
  const Item item{.where = "F:1", .choices = {{"", "abcdefghij"}}};
  const auto whole = questions(item, Question::document, config_, *bytes_);
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].context, Ids{9});
  EXPECT_EQ(whole[0].continuation, ids("abcdefghij"));
  const auto cut = questions(item, Question::document, config_, *bytes_, 4);
  ASSERT_EQ(cut.size(), 3u);
  EXPECT_EQ(cut[0].context, Ids{9});
  EXPECT_EQ(cut[0].continuation, ids("abcd"));
  EXPECT_EQ(cut[1].context, ids("d"));
  EXPECT_EQ(cut[1].continuation, ids("efgh"));
  EXPECT_EQ(cut[2].context, ids("fgh"));
  EXPECT_EQ(cut[2].continuation, ids("ij"));
}

// What Python 3.11 gives for each.
TEST(SuiteText, IsPythons) {
  EXPECT_EQ(data::strip("\xc2\xa0 \x1c\xe3\x80\x80 a b\xe2\x80\x89\n"), "a b");
  EXPECT_EQ(data::strip_end(" a\t"), " a");
  EXPECT_EQ(data::strip(" \n"), "");
  EXPECT_EQ(data::count_words(" a \n b  c"), 4);
  EXPECT_EQ(data::count_words(""), 1);
  EXPECT_EQ(data::single_spaced(" a \xc2\xa0\n b\xc3\xa9 c "), "a b\xc3\xa9 c");
  EXPECT_EQ(data::single_spaced("\t "), "");
  EXPECT_EQ(data::split(" a\n\xc3\xa9"), (std::vector<std::string>{"a", "\xc3\xa9"}));
  EXPECT_EQ(data::lowered("A\xc3\x89z[\xce\xa3"), "a\xc3\xa9z[\xcf\x83");
  EXPECT_EQ(data::count_characters("a\xc3\xa9\xe2\x82\xac"), 3);
  EXPECT_EQ(data::replaced("aaaa", "aa", "a"), "aa");
  EXPECT_EQ(data::capitalized("\xc3\xa9T\xc3\x89 OK"), "\xc3\x89t\xc3\xa9 ok");
}

TEST(SuiteText, HellaSwagLosesItsBrackets) {
  EXPECT_EQ(clean_hellaswag(" a [title] b [step] c  d\n"), "a. b c d");
  EXPECT_EQ(clean_hellaswag("a [b\nc] [d [e] f"), "a [b\nc] f");
}

TEST(SuiteText, WikiTextIsPutTogetherAgain) {
  EXPECT_EQ(detokenize_wikitext(" = A = \n \n x , y @-@ z ( 1 @,@ 000 ) \" q \" 's N N ; [ b ] \n"),
            " = A =\n\nx, y-z (1,000) \"q\"'s 1 N; [b]\n");
  EXPECT_EQ(detokenize_wikitext("/' 7/ = = = B = = = 5 \xc2\xb0 C ' d ' ( e"),
            "/'[0-9]/ === B === 5\xc2\xb0\x43' d ' ( e");
  EXPECT_EQ(wikitext_pages("\n = A = \n a\n = = B = = \n b\n = C = \nc\n"),
            (std::vector<std::string>{" = A = \n a\n = = B = = \n b", " = C = \nc\n"}));
}

TEST(SuiteScore, TheFirstOfTheLikeliestIsChosen) {
  const Item item{.where = "F:1",
                  .choices = {{"", " aaaa"}, {"", " \xc3\xa9\xc3\xa9"}, {"", " b"}}};
  const auto of = [](double a, double b, double c) {
    return Answers{{a, false, 1}, {b, false, 1}, {c, false, 1}};
  };
  EXPECT_EQ(chosen(item, of(-2, -1, -1)).plain, 1);
  // By 4, 2 and 1 characters, and 4, 4 and 1 bytes.
  const auto tied = chosen(item, of(-4, -2, -1));
  EXPECT_EQ(tied.by_character, 0);
  EXPECT_EQ(tied.by_byte, 1);
  EXPECT_EQ(chosen(item, of(-4, -4, -0.5)).by_character, 2);
}

TEST(SuiteScore, MeasuresAndTheirErrors) {
  SuiteData data{.suite = &find_suite("blimp"), .parts = {"a", "b"}};
  std::vector<Answers> answers;
  for (const int right : {1, 1, 0, 1, 0, 0}) {
    data.items.push_back(
        {.where = "F", .part = data.items.size() / 4, .choices = {{"", " a"}, {"", " b"}}});
    answers.push_back({{right == 1 ? -1. : -3., false, 1}, {-2, false, 1}});
  }
  const auto first = measure_part(data, answers, 0);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].name, "acc");
  EXPECT_DOUBLE_EQ(first[0].value, 0.75);
  EXPECT_DOUBLE_EQ(*first[0].standard_error, 0.25);  // √(0.25 / 4), deviation over 3
  const auto all = measure(data, answers);
  EXPECT_DOUBLE_EQ(all[0].value, 0.375);  // parts weigh the same
  EXPECT_DOUBLE_EQ(*all[0].standard_error, 0.125);

  const SuiteData words{
      .suite = &find_suite("lambada"),
      .parts = {"a"},
      .items = {{.where = "F", .choices = {{}}}, {.where = "F", .choices = {{}}}}};
  const auto lambada = measure(words, std::vector<Answers>{{{-1, true, 1}}, {{-3, false, 2}}});
  EXPECT_EQ(lambada[0].name, "perplexity");
  EXPECT_DOUBLE_EQ(lambada[0].value, std::exp(2.));
  EXPECT_DOUBLE_EQ(*lambada[0].standard_error, std::exp(2.));
  EXPECT_DOUBLE_EQ(lambada[1].value, 0.5);

  const SuiteData pages{.suite = &find_suite("wikitext"),
                        .parts = {"a"},
                        .items = {{.where = "F", .choices = {{}}, .num_words = 3, .num_bytes = 10},
                                  {.where = "F", .choices = {{}}, .num_words = 1, .num_bytes = 6}}};
  const auto wikitext = measure(pages, std::vector<Answers>{{{-5, true, 4}}, {{-3, false, 2}}});
  EXPECT_DOUBLE_EQ(wikitext[0].value, std::exp(2.));
  EXPECT_DOUBLE_EQ(wikitext[1].value, std::exp(0.5));
  EXPECT_DOUBLE_EQ(wikitext[2].value, 0.5 / std::log(2.));
}

// Knows the bytes of "ab" alone; what it does not know gives no token.
struct PoorTokenizer : data::Tokenizer {
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    for (const char c : text)
      if (c == 'a' || c == 'b') ids.push_back(c - 'a');
    return ids;
  }
  std::string decode(std::span<const int32_t>) const override { return ""; }
  int64_t vocab_size() const override { return 3; }
  int32_t end_of_document() const override { return 2; }
  const std::string& name() const override { return name_; }
  size_t find_cut(std::string_view text, size_t) const override { return text.size(); }
  std::vector<int32_t> encode_rest(std::string_view text) const override { return encode(text); }

 private:
  std::string name_ = "bpe";
};

TEST(Asking, ADocumentIsReadOnceForAllItsQuestions) {
  const test::Draw draw(3);
  const auto model = test::language_model(draw, 1);
  const PoorTokenizer tokenizer;
  const auto document = std::make_shared<const std::string>(300, 'a');
  std::vector<Item> items;
  for (const auto* question : {"b", "bab", "ba"})
    items.push_back(
        {.where = "F", .choices = {{question, "ab"}, {question, "ba"}}, .document = document});
  std::vector<size_t> counts;
  const auto num_read = [&](size_t batch) {
    const auto before = model->num_read();
    counts.clear();
    const Asking asking{
        .model = *model, .tokenizer = tokenizer, .suite = find_suite("quality"), .batch = batch};
    ask(asking, items, [&](std::span<const Answers> answers) { counts.push_back(answers.size()); });
    return model->num_read() - before;
  };
  // The document; of each question all but its last token; of each choice that one and its first.
  EXPECT_EQ(num_read(2), 300 + (0 + 2 + 1) + 6 * 2);
  EXPECT_EQ(counts, (std::vector<size_t>{2, 1}));
  items.resize(1);
  EXPECT_EQ(num_read(2), 300 + 2 * 2);
}

TEST(QuestionsOfAPoorTokenizer, AreRefusedWithoutTokens) {
  const test::Draw draw(1);
  const auto asked = [&](const std::string& context, const std::string& continuation,
                         Question kind) {
    const Item item{.where = "f.jsonl:3", .choices = {{context, continuation}}};
    try {
      return std::to_string(questions(item, kind, draw.config, PoorTokenizer(), 0).size());
    } catch (const base::Error& mistake) {
      return std::string(mistake.what());
    }
  };
  EXPECT_EQ(asked("a", "b", Question::choice), "1");
  EXPECT_EQ(asked("", "x", Question::choice),
            "f.jsonl:3: continuation must add a token to its context, got none");
  EXPECT_EQ(asked("a", "x", Question::choice),
            "f.jsonl:3: continuation must add a token to its context, got none");
  EXPECT_EQ(asked("x", "a", Question::choice), "f.jsonl:3: context must have a token, got none");
  EXPECT_EQ(asked("", "x", Question::document), "f.jsonl:3: page must have a token, got none");
  EXPECT_EQ(asked("", "b", Question::document), "1");
}

}  // namespace
}  // namespace bmojo::eval
