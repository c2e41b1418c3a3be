#include "bmojo/data/byte_level.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <numeric>
#include <thread>

#include "bmojo/base/digest.h"
#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/json.h"
#include "bmojo/base/random.h"
#include "bmojo/data/added_tokens.h"
#include "bmojo/data/bpe.h"
#include "bmojo/data/nfc.h"
#include "bmojo/data/splitter.h"
#include "bmojo/data/text_stream.h"
#include "bmojo/data/tokenizer_json.h"
#include "bmojo/data/unicode.h"
#include "tests/temp_folder.h"

namespace bmojo::data {
namespace {

using namespace std::string_literals;
using test::contains;
using test::message_of;
using test::TempFolder;

using Ids = std::vector<int32_t>;
using Words = std::vector<std::string>;

std::string utf8(uint32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

// Bytes are ids 0 to 255, whatever the file says in which order; 256 ends a document.
constexpr int32_t kEnd = 256, kFirst = 257;

struct Options {
  Words merges = {};  // "a b": ids from 257 on
  bool ignore_merges = false, nfc = false;
  SplitPattern pattern = SplitPattern::kGpt2;
  Words more_tokens = {};                                // behind those of the merges
  std::vector<std::pair<std::string, bool>> added = {};  // text and `normalized`, then ids
  Words special = {};                                    // then ids
};

std::string json_of(const Options& options) {
  base::Json vocab = base::Json::object(), merges = base::Json::array(),
             added = base::Json::array();
  const auto characters = byte_characters();
  int32_t next = 0;
  for (const uint32_t code : characters) vocab[utf8(code)] = next++;
  const auto add = [&](const std::string& text, bool normalized, bool special) {
    added.push_back(base::Json{
        {"id", next++}, {"content", text}, {"normalized", normalized}, {"special", special}});
  };
  vocab["<|endoftext|>"] = next;
  add("<|endoftext|>", false, true);
  for (const auto& merge : options.merges) {
    auto whole = merge;
    whole.erase(whole.find(' '), 1);
    merges.push_back(merge);
    if (!vocab.contains(whole)) vocab[whole] = next++;
  }
  for (const auto& token : options.more_tokens) vocab[token] = next++;
  for (const auto& [text, normalized] : options.added) add(text, normalized, false);
  for (const auto& text : options.special) add(text, false, true);
  base::Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  base::Json steps = byte_level;
  if (options.pattern == SplitPattern::kDigits)
    steps = {{"type", "Sequence"},
             {"pretokenizers",
              base::Json::array({{{"type", "Digits"}, {"individual_digits", true}}, byte_level})}};
  if (options.pattern == SplitPattern::kLlama3) {
    byte_level["use_regex"] = false;
    const base::Json split = {{"type", "Split"},
                              {"pattern", {{"Regex", kLlama3Regex}}},
                              {"behavior", "Isolated"},
                              {"invert", false}};
    steps = {{"type", "Sequence"}, {"pretokenizers", base::Json::array({split, byte_level})}};
  }
  const base::Json model = {{"type", "BPE"},
                            {"ignore_merges", options.ignore_merges},
                            {"vocab", vocab},
                            {"merges", merges}};
  return base::Json{
      {"added_tokens", added},
      {"normalizer", options.nfc ? base::Json::object({{"type", "NFC"}}) : base::Json()},
      {"pre_tokenizer", steps},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", model}}
      .dump();
}

std::unique_ptr<Tokenizer> make(const Options& options = {}) {
  return make_byte_level(json_of(options), "tokenizer.json");
}

// --- UTF-8 ---

TEST(Utf8, FaultsAreReplacedAsPythonDoes) {
  const std::string x = "\xef\xbf\xbd";
  const std::map<std::string, std::string> cases = {
      {"", ""},
      {"abc é 語 😀\0"s, "abc é 語 😀\0"s},
      {"\xff", x},
      {"\x80\x80", x + x},
      {"\xc0\x80", x + x},
      {"\xc3", x},
      {"\xc3(", x + "("},
      {"\xe2\x82", x},
      {"\xe2\x82 ", x + " "},
      {"\xe2(\xa1", x + "(" + x},
      {"\xed\xa0\x80", x + x + x},
      {"\xed\x9f\xbf\xee\x80\x80", "\xed\x9f\xbf\xee\x80\x80"},
      {"\xe0\x80\x80", x + x + x},
      {"\xf0\x9f\x98", x},
      {"\xf0\x9f\x98\xf0\x9f\x98\x80", x + "😀"},
      {"\xf0\x80\x80\x80", x + x + x + x},
      {"\xf4\x8f\xbf\xbf\xf4\x90\x80\x80", "\xf4\x8f\xbf\xbf" + x + x + x + x},
      {"\xf5\x80", x + x},
      {"12345678\xff"
       "12345678",
       "12345678" + x + "12345678"}};
  for (const auto& [text, expected] : cases) EXPECT_EQ(replace_utf8_faults(text), expected);
  EXPECT_TRUE(find_utf8_fault("ab\xf0\x9f\x98").is_cut);
  EXPECT_FALSE(find_utf8_fault("ab\xf0\x9f\x98 ").is_cut);
  EXPECT_FALSE(find_utf8_fault("ab\xff").is_cut);
  EXPECT_EQ(find_utf8_fault("ab\xf0\x9f\x98").at, 2u);
}

// --- NFC ---

std::string nfc(std::string_view text) {
  std::string buffer;
  return std::string(to_nfc(text, buffer));
}

TEST(Nfc, ComposesAndOrders) {
  EXPECT_EQ(nfc("plain é 語 😀"), "plain é 語 😀");
  EXPECT_EQ(nfc("e\u0301"), "é");
  EXPECT_EQ(nfc("xe\u0301x e\u0301"), "xéx é");
  EXPECT_EQ(nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(nfc("\u0301a\u0301"), "\u0301á");
  EXPECT_EQ(nfc("\u1100\u1161\u11a8"), "각");
  EXPECT_EQ(nfc("가\u11a8"), "각");
  EXPECT_EQ(nfc("\u212b"), "Å");
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093c");
  EXPECT_EQ(nfc("\u09c7\u09be"), "\u09cb");
  std::string buffer;
  const std::string_view text = "nothing to do: ä";
  EXPECT_EQ(to_nfc(text, buffer).data(), text.data());
}

TEST(Nfc, LeavesYoungerCharactersAlone) {
  // U+1ABF came with Unicode 13: its mark neither moves nor lets others past.
  EXPECT_EQ(nfc("a\u0301\u1abf\u0323"), "á\u1abf\u0323");
  EXPECT_EQ(nfc("\u1abf\u0301\u0323"), "\u1abf\u0323\u0301");
  EXPECT_EQ(nfc("a\u1abf\u0334"), "a\u1abf\u0334");  // whose class is lower
  EXPECT_EQ(nfc("\U00011935\U00011930"), "\U00011935\U00011930");
}

TEST(Nfc, TakesManyMarksInNoTime) {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
  const auto start = std::chrono::steady_clock::now();
  const auto found = nfc(text);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(found.size(), std::string("\u1ea1").size() + 2 * (200'000 - 1));
  EXPECT_TRUE(found.starts_with("\u1ea1\u0323") && found.ends_with("\u0301\u0301"));
}

// --- splitters ---

Words words(SplitPattern pattern, std::string_view text) {
  const Splitter splitter(pattern);
  Words found;
  const char* const end = text.data() + text.size();
  for (const char* p = text.data(); p < end;) {
    const char* const stop = splitter.word_end(p, end);
    EXPECT_GT(stop, p);
    found.emplace_back(p, stop);
    p = stop;
  }
  return found;
}

TEST(Splitter, Gpt2) {
  const std::map<std::string, Words> cases = {
      {"Hello, world!", {"Hello", ",", " world", "!"}},
      {"I'll don't 'S 's", {"I", "'ll", " don", "'t", " '", "S", " '", "s"}},
      {"'re've'm'd'x''s", {"'re", "'ve", "'m", "'d", "'", "x", "''", "s"}},
      {"a  b", {"a", " ", " b"}},
      {"a   \n  b", {"a", "   \n ", " b"}},
      {"a\n\nb", {"a", "\n", "\n", "b"}},
      {"a \t", {"a", " \t"}},
      {" ", {" "}},
      {"x123 45é", {"x", "123", " 45", "é"}},
      {"٣½Ⅷ", {"٣½Ⅷ"}},
      {"a\u3000\u3000b", {"a", "\u3000", "\u3000", "b"}},
      {"e\u0301 😀", {"e", "\u0301", " 😀"}}};
  for (const auto& [text, expected] : cases) EXPECT_EQ(words(SplitPattern::kGpt2, text), expected);
}

TEST(Splitter, Digits) {
  const std::map<std::string, Words> cases = {{"x12 34", {"x", "1", "2", " ", "3", "4"}},
                                              {"a  1", {"a", "  ", "1"}},
                                              {"a  b", {"a", " ", " b"}},
                                              {"٣½", {"٣", "½"}},
                                              {"1's", {"1", "'s"}}};
  for (const auto& [text, expected] : cases)
    EXPECT_EQ(words(SplitPattern::kDigits, text), expected);
}

TEST(Splitter, Llama3) {
  const std::map<std::string, Words> cases = {
      {"Hello, world!", {"Hello", ",", " world", "!"}},
      {"'S'RE'll'ſx", {"'S", "'RE", "'ll", "'ſ", "x"}},
      {"12345 6", {"123", "45", " ", "6"}},
      {"(abc ((abc \tabc", {"(abc", " ((", "abc", " ", "\tabc"}},
      {"a.\n\nb", {"a", ".\n\n", "b"}},
      {"a \n \n  b", {"a", " \n \n", " ", " b"}},
      {"a\r\n\tb", {"a", "\r\n", "\tb"}},
      {"a   ", {"a", "   "}},
      {"a   1", {"a", "  ", " ", "1"}},
      {" !\r\nx", {" !\r\n", "x"}},
      {"\nabc", {"\n", "abc"}}};
  for (const auto& [text, expected] : cases)
    EXPECT_EQ(words(SplitPattern::kLlama3, text), expected);
}

TEST(Splitter, KnowsUnicode16) {
  // Letters and a digit that are new in 16.0 (Garay), and what is none.
  EXPECT_EQ(words(SplitPattern::kGpt2, "a\U00010d4a"), (Words{"a\U00010d4a"}));
  EXPECT_EQ(words(SplitPattern::kGpt2, "1\U00010d40"), (Words{"1\U00010d40"}));
  EXPECT_EQ(words(SplitPattern::kGpt2, "a\u180eb"), (Words{"a", "\u180e", "b"}));
  const auto flags = character_flags();
  EXPECT_EQ(std::count_if(flags, flags + 0x110000, [](int f) { return (f & 3) == kLetter; }),
            141'028);
  EXPECT_EQ(std::count_if(flags, flags + 0x110000, [](int f) { return (f & 3) == kNumber; }),
            1'911);
  EXPECT_EQ(std::count_if(flags, flags + 0x110000, [](int f) { return (f & 3) == kSpace; }), 25);
}

// --- added tokens ---

TEST(AddedTokens, TheLeftmostThenTheLongest) {
  AddedTokens tokens;
  EXPECT_EQ(tokens.find("abc", 0).begin, 3u);
  int32_t id = 0;
  for (const char* text : {"ab", "abcd", "bc", "  ", "   ", "x"}) tokens.add(text, id++);
  tokens.add("ab", 99);  // the first one counts
  const auto found = [&](std::string_view text, size_t from = 0) {
    const auto match = tokens.find(text, from);
    return std::tuple(match.begin, match.end, match.id);
  };
  EXPECT_EQ(found("abc"), std::tuple(0u, 2u, 0));
  EXPECT_EQ(found("zabcd"), std::tuple(1u, 5u, 1));
  EXPECT_EQ(found("abc", 1), std::tuple(1u, 3u, 2));
  EXPECT_EQ(found("a    b"), std::tuple(1u, 4u, 4));
  EXPECT_EQ(found("zx"), std::tuple(1u, 2u, 5));
  EXPECT_EQ(found("a b"), std::tuple(3u, 3u, -1));
}

// --- merges ---

TEST(Bpe, TheBestPairFirstThenTheLeftmost) {
  const auto tokenizer = make({.merges = {"b c", "a b", "ab c", "a a"}});
  EXPECT_EQ(tokenizer->encode("abc"), (Ids{'a', kFirst}));  // b c comes before a b
  EXPECT_EQ(tokenizer->encode("ab"), (Ids{kFirst + 1}));
  EXPECT_EQ(tokenizer->encode("aaa"), (Ids{kFirst + 3, 'a'}));
  EXPECT_EQ(tokenizer->encode("abcbcab"), (Ids{'a', kFirst, kFirst, kFirst + 1}));
}

// What the definition says, for words of any length.
Ids merged_slowly(const std::string& word, const std::vector<BpeMerge>& merges) {
  Ids ids(word.begin(), word.end());
  while (true) {
    size_t best = merges.size(), place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (size_t rank = 0; rank < best; ++rank)
        if (merges[rank].left == ids[i] && merges[rank].right == ids[i + 1]) {
          best = rank;
          place = i;
        }
    }
    if (best == merges.size()) return ids;
    ids[place] = merges[best].whole;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

TEST(Bpe, EqualsItsDefinition) {
  base::Random random({7});
  for (int round = 0; round < 300; ++round) {
    Bpe::Parts parts{.bytes = {}, .merges = {}};
    std::iota(parts.bytes.begin(), parts.bytes.end(), 0);
    // Tokens are strings, as in a file: the same whole may come of several pairs.
    std::vector<std::pair<std::string, int32_t>> tokens = {{"a", 'a'}, {"b", 'b'}, {"c", 'c'}};
    for (int i = 0; i < 25; ++i) {
      const auto left = tokens[random.below(tokens.size())];
      const auto right = tokens[random.below(tokens.size())];
      const auto text = left.first + right.first;
      const auto found = std::ranges::find(tokens, text, &std::pair<std::string, int32_t>::first);
      const int32_t id =
          found == tokens.end() ? 256 + static_cast<int32_t>(tokens.size()) : found->second;
      if (found == tokens.end()) tokens.emplace_back(text, id);
      const auto is_same = [&](const BpeMerge& merge) {
        return merge.left == left.second && merge.right == right.second;
      };
      if (std::ranges::none_of(parts.merges, is_same))
        parts.merges.push_back({left.second, right.second, id});
    }
    const Bpe bpe(parts);
    Bpe::Cache cache;
    for (const size_t size : {1, 2, 5, 13, 31, 32, 40, 41, 42, 90, 200}) {
      std::string word;
      while (word.size() < size) word += "abc"[random.below(3)];
      const auto expected = merged_slowly(word, parts.merges);
      for (int again = 0; again < 2; ++again) {  // the second time from the cache
        Ids ids = {-5};
        bpe.encode(word, word.size(), cache, ids);
        ASSERT_EQ(ids.front(), -5);
        ids.erase(ids.begin());
        ASSERT_EQ(ids, expected) << word;
      }
    }
  }
}

TEST(Bpe, TakesLongWordsInNoTime) {
  const auto tokenizer = make({.merges = {"a a", "aa aa", "aaaa aaaa"}});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(tokenizer->encode(std::string(1 << 20, 'a')), Ids((1 << 20) / 8, kFirst + 2));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(Bpe, AWordThatIsATokenMayGoWithoutMerges) {
  const Options plain{.merges = {"a b"}, .more_tokens = {"abc", "Ġabc"}};
  EXPECT_EQ(make(plain)->encode("abc abc"), (Ids{kFirst, 'c', ' ', kFirst, 'c'}));
  auto options = plain;
  options.ignore_merges = true;
  EXPECT_EQ(make(options)->encode("abc abc"), (Ids{kFirst + 1, kFirst + 2}));
  EXPECT_EQ(make(options)->encode("abcd"), (Ids{kFirst, 'c', 'd'}));
}

// --- the whole ---

TEST(ByteLevel, EveryByteHasItsCharacter) {
  const auto characters = byte_characters();
  EXPECT_EQ(characters['a'], 'a');
  EXPECT_EQ(characters[' '], 0x120u);
  EXPECT_EQ(characters['\n'], 0x10au);
  EXPECT_EQ(characters[0], 0x100u);
  EXPECT_EQ(characters[0x7f], 0x121u);
  EXPECT_EQ(characters[0xad], 0x143u);
  EXPECT_EQ(characters[0xff], 0xffu);
}

TEST(ByteLevel, TextComesBack) {
  for (const auto pattern : {SplitPattern::kGpt2, SplitPattern::kDigits, SplitPattern::kLlama3}) {
    const auto tokenizer = make({.merges = {"Ġ a", "b c", "Ã ©"}, .pattern = pattern});
    const auto text = "abc é\n\n  12345 'll 語😀\0\t\x7f ab  "s;
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    EXPECT_TRUE(tokenizer->encode("").empty());
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("a\xff")), "a\xef\xbf\xbd");
  }
  const auto tokenizer = make();
  for (const auto& text : {"\0"s, "\0\0"s, "a"s, "\0"s, "\1"s})
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->end_of_document(), kEnd);
  EXPECT_EQ(tokenizer->name(), "bpe");
  EXPECT_EQ(tokenizer->model(), json_of({}));
  EXPECT_EQ(tokenizer->digest(), base::digest_of_text(json_of({})));
  for (const int32_t id : {-1, 257})
    EXPECT_TRUE(contains(message_of<base::Error>([&] { tokenizer->decode(Ids{id}); }),
                         fmt::format("token id must be from 0 to 256, got {}", id)));
}

TEST(ByteLevel, AddedTokensBeforeAndBehindTheNormaliser) {
  const auto tokenizer =
      make({.nfc = true,
            .added = {{"é!", true}, {"e\u0301?", false}, {"  ", true}, {"    ", true}},
            .special = {"<|x|>"}});
  const int32_t composed = kFirst, raw = kFirst + 1, two = kFirst + 2, four = kFirst + 3;
  EXPECT_EQ(tokenizer->encode("e\u0301!"), (Ids{composed}));
  EXPECT_EQ(tokenizer->encode("é!"), (Ids{composed}));
  EXPECT_EQ(tokenizer->encode("e\u0301?"), (Ids{raw}));
  EXPECT_EQ(tokenizer->encode("é?"), (Ids{0xc3, 0xa9, '?'}));
  EXPECT_EQ(tokenizer->encode("a       b"), (Ids{'a', four, two, ' ', 'b'}));
  EXPECT_EQ(tokenizer->encode("a<|x|><|endoftext|>b"), (Ids{'a', kFirst + 4, kEnd, 'b'}));
  // A mark behind a special token has nothing to be composed with.
  EXPECT_EQ(tokenizer->encode("e<|x|>\u0301"), (Ids{'e', kFirst + 4, 0xcc, 0x81}));
  EXPECT_EQ(tokenizer->decode(Ids{'a', composed, kFirst + 4, kEnd, four, 'b'}), "aé!    b");
}

TEST(ByteLevel, BytesWithoutATokenAreLeftOut) {
  auto json = base::Json::parse(json_of({.merges = {"a b"}}));
  base::Json vocab = base::Json::object();
  int32_t next = 0;
  for (const char* token : {"a", "b", "<|endoftext|>", "ab"}) vocab[token] = next++;
  json["model"]["vocab"] = vocab;
  json["added_tokens"][0]["id"] = 2;
  const auto tokenizer = make_byte_level(json.dump(), "x");
  EXPECT_EQ(tokenizer->encode("a b axb!"), (Ids{0, 1, 3}));
}

std::string mixed_text(size_t size, uint64_t seed) {
  const Words kinds = {
      "a",    "b",  " ",       "   ", "ab",      "\n",     "\r\n",         "\n\n", "😀",
      "語",   "é",  "1",       "12",  "e\u0301", "\u0958", "\0"s,          "\xff", "\xe2\x82",
      "\xed", "'s", "<|x y|>", ".",   "\t",      "\u3000", "<|endoftext|>"};
  base::Random random({seed});
  std::string text;
  while (text.size() < size) text += kinds[random.below(kinds.size())];
  return text;
}

TEST(ByteLevel, CutsChangeNothing) {
  for (const auto pattern : {SplitPattern::kGpt2, SplitPattern::kDigits, SplitPattern::kLlama3}) {
    for (const bool nfc : {false, true}) {
      const auto tokenizer = make({.merges = {"Ġ a", "Ġ Ġ", "Ċ Ċ", ". Ċ", "b Ġ", "a b"},
                                   .nfc = nfc,
                                   .pattern = pattern,
                                   .added = {{"  ", true}, {"語x", true}}});
      const auto text = mixed_text(3000, 2);
      const std::string_view all = text;
      const auto expected = tokenizer->encode(text);
      size_t num_cuts = 0;
      for (size_t at = tokenizer->find_cut(text, 0); at < text.size();
           at = tokenizer->find_cut(text, at + 1), ++num_cuts) {
        auto ids = tokenizer->encode(all.substr(0, at));
        const auto rest = tokenizer->encode_rest(all.substr(at));
        ids.insert(ids.end(), rest.begin(), rest.end());
        ASSERT_EQ(ids, expected) << "cut at " << at;
      }
      EXPECT_GT(num_cuts, 50u);
    }
  }
}

TEST(ByteLevel, IsNotCutWithinAnAddedToken) {
  EXPECT_EQ(make()->find_cut("ab cd", 0), 2u);
  EXPECT_EQ(make()->find_cut(" ab", 0), 3u);
  EXPECT_EQ(make({.special = {"x y"}})->find_cut("ab cd", 0), 5u);
  EXPECT_EQ(make({.pattern = SplitPattern::kLlama3})->find_cut("a.\nb c", 0), 4u);
  EXPECT_EQ(make({.pattern = SplitPattern::kLlama3})->find_cut("語\nb", 0), 3u);
  EXPECT_TRUE(contains(message_of<base::Error>([] { make()->encode_rest("b"); }),
                       "text must begin at a cut, got 'b'"));
  EXPECT_TRUE(
      contains(message_of<base::Error>([] { make({.special = {"x y"}})->encode_rest(" b"); }),
               "text must begin at a cut"));
}

TEST(ByteLevel, RefusesMoreThanItCanCount) {
  const TempFolder folder;
  const auto path = folder.write("x", "");
  std::filesystem::resize_file(path, (size_t{1} << 31) + 1);  // takes no disk, and is not read
  const base::MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  EXPECT_TRUE(contains(message_of<base::Error>([&] { make()->encode(text); }),
                       "text: must have a place to cut it within 2147483648 bytes"));
}

TEST(ByteLevel, EncodesOnSeveralThreads) {
  const auto tokenizer = make({.merges = {"Ġ a", "a b"}, .nfc = true});
  const auto expected = tokenizer->encode(mixed_text(50'000, 3));
  std::vector<Ids> found(4);
  {
    std::vector<std::jthread> threads;
    for (auto& ids : found)
      threads.emplace_back([&] { ids = tokenizer->encode(mixed_text(50'000, 3)); });
  }
  for (const auto& ids : found) EXPECT_EQ(ids, expected);
}

// The folder of real data, where there is one.
std::filesystem::path data_folder() {
  if (const char* named = std::getenv("BMOJO_DATA"); named != nullptr && *named) return named;
  const auto root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  return root.parent_path() / "shared/data";
}

TEST(ByteLevel, RealTokenizersGiveTextBack) {
  const auto folder = data_folder() / "tokenizers";
  if (!std::filesystem::exists(folder))
    GTEST_SKIP() << "no " << folder << "; BMOJO_DATA names the data's folder";
  // No bytes that SmolLM2 has no token for, and nothing that NFC changes.
  const std::vector<std::string> kinds = {
      "The ", "word",   " and",   "don't",  "\n",  "\n\n", "  ",   "1234", " é",   "語",    "😀",
      "\t",   "Straße", " слово", "x = 1;", "...", " \n",  "메모", "\r\n", "स्मृति", "\u00a0"};
  base::Random random({11});
  std::string text;
  while (text.size() < 500'000) text += kinds[random.below(kinds.size())];
  for (const char* file :
       {"gpt2/vocab.json", "gpt-neox-20b/tokenizer.json", "smollm2/tokenizer.json"}) {
    const auto tokenizer = load_tokenizer(folder / file);
    const auto ids = tokenizer->encode(text);
    EXPECT_EQ(tokenizer->decode(ids), text) << file;
    TextStream stream(*tokenizer);
    std::string streamed;
    for (const int32_t id : ids) streamed += stream.push(id);
    EXPECT_EQ(streamed + stream.finish(), text) << file;
  }
}

// --- text as it comes ---

TEST(TextStream, HoldsIncompleteCharactersBack) {
  const auto tokenizer = make();
  TextStream stream(*tokenizer);
  Words found;
  for (const int32_t id : Ids{'a', 0xf0, 0x9f, 0x98, 0x80, 'b', 0xc3, kEnd, 0xa9, 0xc3, 'x', 0xff})
    found.push_back(stream.push(id));
  const std::string x = "\xef\xbf\xbd";
  EXPECT_EQ(found, (Words{"a", "", "", "", "😀", "b", "", "", "é", "", x + "x", x}));
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.push(0xe2), "");
  EXPECT_EQ(stream.push(0x82), "");
  EXPECT_EQ(stream.finish(), x);
  EXPECT_EQ(stream.push('a'), "a");
}

TEST(TextStream, GivesWhatDecodeGives) {
  for (const auto& tokenizer : {make({.merges = {"Ã ©", "ð Ł"}}), load_tokenizer("bytes")}) {
    TextStream stream(*tokenizer);
    base::Random random({5});
    for (int round = 0; round < 200; ++round) {
      Ids ids;
      std::string text;
      for (int i = 0; i < 60; ++i) {
        ids.push_back(static_cast<int32_t>(random.below(2) == 0 ? 0x80 + random.below(0x80)
                                                                : random.below(257)));
        const auto part = stream.push(ids.back());
        EXPECT_EQ(find_utf8_fault(part).at, part.size());
        text += part;
      }
      text += stream.finish();
      ASSERT_EQ(text, replace_utf8_faults(tokenizer->decode(ids)));
    }
  }
}

// --- files ---

TEST(ByteLevel, IsReadFromItsFiles) {
  const TempFolder folder;
  const auto json = folder.write("tokenizer.json", json_of({.merges = {"a b"}}));
  const auto tokenizer = load_tokenizer(json);
  EXPECT_EQ(tokenizer->encode("ab"), (Ids{kFirst}));
  EXPECT_EQ(load_tokenizer(folder.write("other.name", json_of({})))->vocab_size(), 257);

  const auto model = base::Json::parse(json_of({.merges = {"a b"}}))["model"];
  folder.write("vocab.json", model["vocab"].dump());
  folder.write("merges.txt", "#version: 0.2\r\na b\r\n");
  const auto pair = load_tokenizer(folder / "vocab.json");
  EXPECT_EQ(pair->encode("ab<|endoftext|>"), (Ids{kFirst, kEnd}));
  EXPECT_EQ(make_byte_level(std::string(pair->model()), "x")->encode("cab"), (Ids{'c', kFirst}));

  using Digests = std::map<std::string, std::string>;
  const Digests both = {{"tokenizer.json", tokenizer->digest()}, {"vocab.json", pair->digest()}};
  EXPECT_EQ(tokenizer_digests(folder.path(), "bpe"), both);
  EXPECT_EQ(tokenizer_digests(folder.path(), "bytes"), Digests());
  folder.write("tokenizer.model", "pieces");
  EXPECT_EQ(tokenizer_digests(folder.path(), "bpe"), both);
  const Digests pieces = {{"tokenizer.model", base::digest_of_text("pieces")}};
  EXPECT_EQ(tokenizer_digests(folder.path(), "sentencepiece"), pieces);
  for (const char* name : {"tokenizer.json", "vocab.json"}) std::filesystem::remove(folder / name);
  EXPECT_EQ(tokenizer_digests(folder.path(), "bpe"), pieces);
}

}  // namespace
}  // namespace bmojo::data
