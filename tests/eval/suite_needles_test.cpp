// Texts that are made, read as somebody would who knows RULER's tasks alone.

#include "bmojo/eval/suite_needles.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "bmojo/base/error.h"
#include "bmojo/data/python_text.h"

namespace bmojo::eval {
namespace {

using Count = std::function<int64_t(const std::string& text)>;

const std::string kNoise =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

int64_t bytes(const std::string& text) { return std::ssize(text); }
int64_t words(const std::string& text) { return data::count_words(text); }

struct Case {
  Count count;
  int64_t length, each;  // tokens of a noise
};

Making making(const Count& count, int64_t length, int64_t answer_tokens, uint64_t seed = 0) {
  return {.count_tokens = count, .length = length, .answer_tokens = answer_tokens, .seed = seed};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

int64_t count_noise(const std::string& text) {
  int64_t count = 0;
  for (size_t at = text.find(kNoise); at != text.npos; at = text.find(kNoise, at + 1)) ++count;
  return count;
}

TEST(Needle, StandsOnceInAsMuchNoiseAsFits) {
  const std::regex needle(R"(One of the special magic numbers for ([a-z]+-[a-z]+) is: (\d{7})\.)");
  for (const auto& [count, length, each] :
       std::vector<Case>{{bytes, 2000, 90}, {bytes, 20000, 90}, {words, 1500, 18}}) {
    std::set<int64_t> places;
    for (uint64_t number = 0; number < 30; ++number) {
      const auto item = make_niah_single(making(count, length, 128), number);
      ASSERT_EQ(item.choices.size(), 1u);
      EXPECT_EQ(item.choices[0].continuation, "");
      const auto& text = item.choices[0].context;
      auto lines = lines_of(text);
      EXPECT_EQ(lines.front(),
                "A special magic number is hidden within the following text. Make sure to memorize "
                "it. I will quiz you about the number afterwards.");
      std::smatch match;
      int64_t num_needles = 0;
      for (size_t i = 1; i + 1 < lines.size(); ++i) {
        if (lines[i] == kNoise) continue;
        ASSERT_TRUE(std::regex_match(lines[i], match, needle)) << lines[i];
        EXPECT_EQ(item.golds, std::vector{match[2].str()});
        EXPECT_EQ(lines.back(),
                  fmt::format("What is the special magic number for {0} mentioned in the provided "
                              "text? The special magic number for {0} mentioned in the provided "
                              "text is",
                              match[1].str()));
        EXPECT_EQ(lines[i + 1], kNoise);  // never behind the last
        places.insert(static_cast<int64_t>(i));
        ++num_needles;
      }
      EXPECT_EQ(num_needles, 1);
      EXPECT_EQ(count_noise(text), std::ssize(lines) - 3);
      EXPECT_LE(count(text) + 128, length);
      EXPECT_GT(count(text) + 128 + each, length);
    }
    EXPECT_GT(places.size(), 5u);
  }
}

// The assignments of a text in their order, the noise between them taken out.
std::vector<std::string> assignments(const std::string& text) {
  const std::regex one(R"((^|\n) ?VAR ([A-Z]+) = (VAR [A-Z]+|\d{5}) ( ?)The grass is green\.)");
  std::vector<std::string> out;
  for (std::sregex_iterator at(text.begin(), text.end(), one), end; at != end; ++at)
    out.push_back((*at)[2].str() + "=" + (*at)[3].str() + (*at)[4].str());
  return out;
}

// A chain's question, with the answer's beginning; returns the names.
std::vector<std::string> check_chain(const std::string& text, size_t num_letters) {
  const auto found = assignments(text);
  EXPECT_EQ(found.size(), 5u) << text;
  std::vector<std::string> names;
  for (const auto& each : found) names.push_back(each.substr(0, each.find('=')));
  for (const auto& name : names) EXPECT_EQ(name.size(), num_letters);
  EXPECT_EQ(std::set(names.begin(), names.end()).size(), names.size());
  const auto value = found.at(0).substr(num_letters + 1);
  for (size_t i = 1; i < found.size(); ++i)
    EXPECT_EQ(found[i], names[i] + "=VAR " + names[i - 1] + " ");
  EXPECT_TRUE(
      text.starts_with("Memorize and track the chain(s) of variable assignment hidden in "
                       "the following text.\n\n"));
  EXPECT_NE(text.find(fmt::format(
                "There and back again.\n\nQuestion: Find all variables that are assigned the value "
                "{0} in the text above. Answer: According to the chain(s) of variable assignment "
                "in the text above, 5 variables are assgined the value {0}, they are:",
                value)),
            text.npos)
      << text;
  return names;
}

TEST(VariableTracking, AChainBehindAnExample) {
  for (const auto& [count, length, each] :
       std::vector<Case>{{bytes, 3000, 91}, {bytes, 20000, 91}, {words, 2000, 18}})
    for (uint64_t number = 0; number < 20; ++number) {
      const auto item = make_ruler_vt(making(count, length, 30), number);
      const auto& text = item.choices.at(0).context;
      const size_t cut = text.find("\n\n\n\n");
      ASSERT_NE(cut, text.npos);
      const auto example = text.substr(0, cut), question = text.substr(cut + 4);
      EXPECT_EQ(check_chain(question, 5), item.golds);
      EXPECT_TRUE(question.ends_with("they are:"));
      const auto names = check_chain(example, 3);
      EXPECT_TRUE(example.ends_with(fmt::format("they are:  {} {} {} {} {}", names[0], names[1],
                                                names[2], names[3], names[4])));
      EXPECT_LE(count(text) + 30, length);
      EXPECT_GT(count(text) + 30 + each, length);
      // The example has 500 tokens with its answer, but at least six noises.
      EXPECT_GE(count_noise(example), 6);
      if (count_noise(example) > 6) {
        EXPECT_LE(count(example), 500);
        EXPECT_GT(count(example) + 30 + each, 500);
      }
    }
}

TEST(Needles, DependOnTheSeedAndTheirNumberAlone) {
  for (const auto make : {make_niah_single, make_ruler_vt}) {
    const auto text = [&](uint64_t seed, uint64_t number) {
      return make(making(bytes, 4000, 30, seed), number).choices[0].context;
    };
    EXPECT_EQ(text(1, 2), text(1, 2));
    EXPECT_NE(text(1, 2), text(1, 3));
    EXPECT_NE(text(1, 2), text(2, 2));
    const auto data = make_suite(find_suite(make == make_niah_single ? "niah_single" : "ruler_vt"),
                                 making(bytes, 4000, 30, 1), 4);
    ASSERT_EQ(data.items.size(), 4u);
    EXPECT_EQ(data.items[2].choices[0].context, text(1, 2));
    EXPECT_EQ(data.items[2].where, "item 3");
  }
}

// They do not change from version to version.
TEST(Needles, AreAlwaysTheSame) {
  using Golds = std::vector<std::string>;
  EXPECT_EQ(make_niah_single(making(bytes, 1000, 128, 7), 0).golds, Golds{"2004109"});
  EXPECT_EQ(make_ruler_vt(making(bytes, 4000, 30, 7), 0).golds,
            (Golds{"LDUDJ", "ETPVY", "QYUBU", "NMDDM", "UBKBR"}));
}

TEST(Needles, ALengthThatIsTooShortIsRefused) {
  for (const auto make : {make_niah_single, make_ruler_vt}) {
    int64_t least = 0;
    try {
      make(making(bytes, 31, 30), 0);
    } catch (const base::Error& mistake) {
      const std::string text = mistake.what();
      EXPECT_TRUE(text.starts_with("--length: must be at least ")) << text;
      EXPECT_TRUE(text.ends_with(" tokens for item 1, got 31")) << text;
      least = std::stoll(text.substr(27));
    }
    EXPECT_EQ(bytes(make(making(bytes, least, 30), 0).choices[0].context) + 30, least);
    EXPECT_THROW(make(making(bytes, least - 1, 30), 0), base::Error);
  }
}

}  // namespace
}  // namespace bmojo::eval
