#include "bmojo/eval/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "bmojo/base/random.h"
#include "bmojo/eval/prompt.h"

// Stop texts: where a text ends is a matter of its characters, not of the tokens they come in.

namespace bmojo::eval {
namespace {

// Ids stand for pieces of bytes, which need not be whole characters.
class Pieces : public data::Tokenizer {
 public:
  explicit Pieces(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}

  std::vector<int32_t> encode(std::string_view) const override { return {}; }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const auto id : ids) text += pieces_.at(static_cast<size_t>(id));
    return text;
  }
  int64_t vocab_size() const override { return std::ssize(pieces_); }
  int32_t end_of_document() const override { return -1; }
  const std::string& name() const override { return name_; }
  size_t find_cut(std::string_view text, size_t) const override { return text.size(); }
  std::vector<int32_t> encode_rest(std::string_view) const override { return {}; }

 private:
  std::vector<std::string> pieces_;
  std::string name_ = "pieces";
};

// After n tokens the token n is certain; token 0 is the prompt.
class Script : public LanguageModel {
 public:
  explicit Script(int64_t vocabulary) {
    config_.vocab_size = vocabulary;
    config_.hidden_size = 1;
    config_.eos_token_id = -1;
  }
  const model::Config& config() const override { return config_; }
  std::unique_ptr<Memory> begin() const override { return std::make_unique<Count>(); }
  void logits(const float* hidden, int64_t n, float* out) const override {
    std::fill_n(out, n * config_.vocab_size, 0.0f);
    for (int64_t i = 0; i < n; ++i)
      out[i * config_.vocab_size + static_cast<int64_t>(hidden[i]) % config_.vocab_size] = 100;
  }
  void parallel(int64_t n, const base::FunctionRef<void(int64_t)>& task) const override {
    for (int64_t i = 0; i < n; ++i) task(i);
  }

 private:
  struct Count : Memory {
    std::unique_ptr<Memory> copy() const override { return std::make_unique<Count>(*this); }
    int64_t position() const override { return count; }
    int64_t count = 0;
  };
  void read_on(std::span<const Reading> readings, float* hidden, Observer*) const override {
    for (const auto& reading : readings)
      for (size_t i = 0; i < reading.ids.size(); ++i)
        *hidden++ = static_cast<float>(++static_cast<Count*>(reading.memory)->count);
  }
  model::Config config_;
};

bool begins_character(char byte) { return (byte & 0xC0) != 0x80; }

// The text as far as its characters are whole.
std::string whole_characters(std::string bytes, const std::string& all) {
  while (bytes.size() < all.size() && !begins_character(all[bytes.size()])) bytes.pop_back();
  return bytes;
}

// By definition: the text ends with the first token after which a stop text stands in it, before
// the first place where one does.
struct Wanted {
  std::string text;
  size_t num_tokens = 0;
  bool stops = false;
};
Wanted wanted(const std::vector<std::string>& pieces, const std::vector<std::string>& stops) {
  std::string all, bytes;
  for (size_t i = 1; i < pieces.size(); ++i) all += pieces[i];
  for (size_t i = 1; i < pieces.size(); ++i) {
    bytes += pieces[i];
    const auto text = whole_characters(bytes, all);
    size_t first = std::string::npos;
    for (const auto& stop : stops) first = std::min(first, text.find(stop));
    if (first != std::string::npos) return {text.substr(0, first), i, true};
  }
  return {all, pieces.size() - 1, false};
}

struct Written {
  std::string text, streamed, finish;
  size_t num_tokens = 0;
};

// In parts of `at_once` tokens, each of which goes on from a copy of what the last one left.
Written written(const std::vector<std::string>& pieces, const std::vector<std::string>& stops,
                int64_t at_once) {
  const Pieces tokenizer(pieces);
  const Script model(std::ssize(pieces));
  auto from = begin(model);
  const int64_t prompt = 0;
  read_prompt(model, {&prompt, 1}, from);
  Written out;
  const auto limit = pieces.size() - 1;
  while (out.num_tokens < limit && out.finish != "stop") {
    GenerateOptions how;
    how.max_tokens = std::min(at_once, static_cast<int64_t>(limit - out.num_tokens));
    how.sampling.temperature = 0;
    how.stop = stops;
    how.goes_on = out.num_tokens + static_cast<size_t>(how.max_tokens) < limit;
    from = from.copy();
    const auto part = generate(model, from, how, &tokenizer,
                               [&](std::string_view text) { out.streamed += text; });
    out.text += part.text;
    out.num_tokens += part.ids.size();
    out.finish = part.finish;
  }
  return out;
}

void expect_as_wanted(const std::vector<std::string>& pieces,
                      const std::vector<std::string>& stops) {
  const auto expected = wanted(pieces, stops);
  for (const int64_t at_once : {int64_t{1000}, int64_t{1}, int64_t{3}}) {
    const auto got = written(pieces, stops, at_once);
    EXPECT_EQ(got.text, expected.text) << at_once;
    EXPECT_EQ(got.streamed, expected.text) << at_once;
    EXPECT_EQ(got.num_tokens, expected.num_tokens) << at_once;
    EXPECT_EQ(got.finish, expected.stops ? "stop" : "length") << at_once;
  }
}

TEST(Generate, StopsAcrossTokensAndCharacters) {
  // The first piece is the prompt's. é is C3 A9, 好 E5 A5 BD, 🎈 F0 9F 8E 88.
  expect_as_wanted({"", "caf", "\xC3", "\xA9", "!"}, {"é"});
  expect_as_wanted({"", "x\xE5", "\xA5", "\xBD\ny", "z"}, {"好\n"});
  expect_as_wanted({"", "a\xF0\x9F", "\x8E", "\x88", "xyz"}, {"🎈x"});
  expect_as_wanted({"", "one two", " three"}, {"e tw"});
  expect_as_wanted({"", "ab", "cab", "cd"}, {"abcd", "bca"});
  expect_as_wanted({"", "aaa", "aab"}, {"aaaab"});
  expect_as_wanted({"", "é", "è"}, {"\xC3\xA8"});
  expect_as_wanted({"", "almost", " a st"}, {"stop"});
}

TEST(Generate, StopsWhereTheTextHasThem) {
  base::Random random({5});
  const std::vector<std::string> characters = {"a", "b", "é", "è", "好", "奼", "🎈", "🎉"};
  int num_stopped = 0;
  for (int draw = 0; draw < 400; ++draw) {
    std::vector<std::string> text;
    for (size_t i = 0, n = 4 + random.below(20); i < n; ++i)
      text.push_back(characters[random.below(draw % 2 == 0 ? 4 : characters.size())]);
    std::string bytes;
    for (const auto& each : text) bytes += each;
    std::vector<std::string> pieces = {""};
    for (size_t at = 0, count = 0; at < bytes.size(); at += count)
      pieces.push_back(bytes.substr(at, count = 1 + random.below(5)));
    std::vector<std::string> stops;
    for (size_t i = 0, n = 1 + random.below(3); i < n; ++i) {
      std::string stop;
      const size_t first = random.below(text.size()), count = 1 + random.below(4);
      for (size_t j = first; j < std::min(first + count, text.size()); ++j) stop += text[j];
      stops.push_back(random.below(3) == 0 ? stop + "c" : stop);  // some never come
    }
    num_stopped += wanted(pieces, stops).stops;
    SCOPED_TRACE(draw);
    expect_as_wanted(pieces, stops);
    if (HasFailure()) break;
  }
  EXPECT_GT(num_stopped, 100);
  EXPECT_LT(num_stopped, 390);
}

}  // namespace
}  // namespace bmojo::eval
