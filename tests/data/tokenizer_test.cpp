#include "bmojo/data/tokenizer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <thread>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/random.h"
#include "bmojo/data/text_stream.h"
#include "tests/temp_folder.h"

namespace bmojo::data {
namespace {

using namespace std::string_literals;
using test::begins;
using test::contains;
using test::message_of;
using test::TempFolder;

using Ids = std::vector<int32_t>;

// --- a SentencePiece model, field by field as sentencepiece_model.proto numbers them ---

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
std::string field(uint64_t number, uint64_t value) { return varint(number << 3) + varint(value); }
std::string field(uint64_t number, std::string_view bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}

enum PieceType : uint64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

std::string piece(std::string_view text, float score, PieceType type = kNormal) {
  std::string bits(sizeof(float), '\0');
  std::memcpy(bits.data(), &score, sizeof(float));
  return field(1, field(1, text) + varint(2 << 3 | 5) + bits + field(3, type));
}

struct ModelOptions {
  uint64_t type = 2;  // BPE
  bool dummy_prefix = true, removes_whitespace = false, whitespace_suffix = false;
  std::string more_pieces = "";
  std::string end_piece = "</s>";
};

constexpr int32_t kFirstByte = 3, kBlank = 259, kA = 260, kB = 261, kBlankA = 262, kBlankAB = 264;

std::string model(const ModelOptions& options = {}) {
  std::string out = piece("<unk>", 0, kUnknown) + piece("<s>", 0, kControl) +
                    piece(options.end_piece, 0, kControl);
  for (int byte = 0; byte < 256; ++byte) out += piece(fmt::format("<0x{:02X}>", byte), 0, kByte);
  out += piece("▁", -9) + piece("a", -9) + piece("b", -9);
  out += piece("▁a", -1) + piece("ab", -2) + piece("▁ab", -3) + piece("▁▁", -4);
  out += options.more_pieces;
  out += field(2, field(3, options.type) + field(24, options.whitespace_suffix) + field(35, 1));
  return out + field(3, field(3, options.dummy_prefix) + field(4, options.removes_whitespace));
}

std::unique_ptr<Tokenizer> load(const TempFolder& folder, const ModelOptions& options = {}) {
  return load_tokenizer(folder.write("tokenizer.model", model(options)));
}

// Letters, blanks, breaks, emoji, NUL and bytes that are not UTF-8.
std::string mixed_text(size_t size, uint64_t seed) {
  const std::vector<std::string> kinds = {"a",  "b",    " ",    "   ",      "ab",
                                          "\n", "\r\n", "\n\n", "😀",       "▁",
                                          "é",  "\0"s,  "\xff", "\xe2\x82", "\xed\xa0\x80"};
  base::Random random({seed});
  std::string text;
  while (text.size() < size) text += kinds[random.below(kinds.size())];
  return text;
}

// --- bytes ---

TEST(Bytes, EveryByteIsItsOwnId) {
  const auto tokenizer = load_tokenizer("bytes");
  std::string text(256, '\0');
  std::iota(text.begin(), text.end(), '\0');
  Ids expected(256);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(tokenizer->encode(text), expected);
  EXPECT_EQ(tokenizer->decode(expected), text);
  EXPECT_EQ(tokenizer->decode(Ids{'a', 256, 'b'}), "ab");
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->end_of_document(), 256);
  EXPECT_EQ(tokenizer->name(), "bytes");
  EXPECT_EQ(tokenizer->digest(), "");
  EXPECT_TRUE(tokenizer->model().empty());
  EXPECT_TRUE(tokenizer->encode("").empty());
}

TEST(Bytes, MayBeCutAnywhere) {
  const auto tokenizer = load_tokenizer("bytes");
  EXPECT_EQ(tokenizer->find_cut("abc", 0), 1u);
  EXPECT_EQ(tokenizer->find_cut("abc", 2), 2u);
  EXPECT_EQ(tokenizer->find_cut("abc", 9), 3u);
  EXPECT_EQ(tokenizer->encode_rest("bc"), (Ids{'b', 'c'}));
}

TEST(Bytes, RefusesOtherIds) {
  const auto tokenizer = load_tokenizer("bytes");
  for (const int32_t id : {-1, 257}) {
    EXPECT_TRUE(contains(message_of<base::Error>([&] { tokenizer->decode(Ids{id}); }),
                         fmt::format("token id must be from 0 to 256, got {}", id)));
  }
}

// --- SentencePiece ---

TEST(SentencePiece, GivesTheIdsOfItsModel) {
  const TempFolder folder;
  const auto tokenizer = load(folder);
  EXPECT_EQ(tokenizer->name(), "sentencepiece");
  EXPECT_EQ(tokenizer->vocab_size(), 266);
  EXPECT_EQ(tokenizer->end_of_document(), 2);
  EXPECT_EQ(tokenizer->model(), model());
  EXPECT_TRUE(begins(tokenizer->digest(), "xxh3-128:"));

  EXPECT_EQ(tokenizer->encode("ab b"), (Ids{kBlankAB, kBlank, kB}));
  EXPECT_EQ(tokenizer->encode("a\nb"), (Ids{kBlankA, kFirstByte + '\n', kB}));
  EXPECT_EQ(tokenizer->encode("b\0a"s), (Ids{kBlank, kB, kFirstByte, kA}));
  // A byte that is not UTF-8 becomes U+FFFD: EF BF BD.
  EXPECT_EQ(tokenizer->encode("\xff"),
            (Ids{kBlank, kFirstByte + 0xef, kFirstByte + 0xbf, kFirstByte + 0xbd}));
  EXPECT_TRUE(tokenizer->encode("").empty());
  EXPECT_EQ(tokenizer->decode(Ids{kBlankAB, kBlank, kB, 2}), "ab b");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a\nb\0 é"s)), "a\nb\0 é"s);
}

TEST(SentencePiece, CutsChangeNothing) {
  const TempFolder folder;
  // An unused piece rules cuts out and changes no id: the whole text goes to the library at once.
  const std::string unused = piece("zz", -5, kUnused);
  for (const bool dummy_prefix : {true, false}) {
    const auto cut = load(folder, {.dummy_prefix = dummy_prefix});
    const auto whole = load(folder, {.dummy_prefix = dummy_prefix, .more_pieces = unused});
    ASSERT_EQ(cut->find_cut("ab\nb", 0), 2u);
    ASSERT_EQ(whole->find_cut("ab\nb", 0), 4u);

    const auto text = mixed_text(200'000, 1);  // longer than what is encoded at once
    EXPECT_EQ(cut->encode(text), whole->encode(text));

    const auto short_text = mixed_text(500, 2);
    const auto expected = whole->encode(short_text);
    size_t num_cuts = 0;
    for (size_t at = cut->find_cut(short_text, 0); at < short_text.size();
         at = cut->find_cut(short_text, at + 1), ++num_cuts) {
      auto ids = cut->encode(std::string_view(short_text).substr(0, at));
      const auto rest = cut->encode_rest(std::string_view(short_text).substr(at));
      ids.insert(ids.end(), rest.begin(), rest.end());
      ASSERT_EQ(ids, expected) << "cut at " << at;
    }
    EXPECT_GT(num_cuts, 20u);
  }
}

TEST(SentencePiece, CutsNoTextWhoseIdsWouldChange) {
  const TempFolder folder;
  const ModelOptions never[] = {{.type = 1},
                                {.removes_whitespace = true},
                                {.whitespace_suffix = true},
                                {.more_pieces = piece("\n", -5)},
                                {.more_pieces = piece("b\nb", -5, kUserDefined)}};
  for (const auto& options : never) {
    const auto tokenizer = load(folder, options);
    EXPECT_EQ(tokenizer->find_cut("ab\nb", 0), 4u);
    EXPECT_TRUE(contains(message_of<base::Error>([&] { tokenizer->encode_rest("\nb"); }),
                         "text must begin at a cut"));
  }
  EXPECT_EQ(load(folder)->find_cut("ab b", 0), 4u);
  EXPECT_EQ(load(folder)->find_cut("\nab", 0), 3u);  // a part is never empty
  EXPECT_TRUE(contains(message_of<base::Error>([&] { load(folder)->encode_rest("b"); }),
                       "text must begin at a cut, got 'b'"));
}

TEST(SentencePiece, RefusesMoreThanTheLibraryCanCount) {
  const TempFolder folder;
  const auto path = folder.write("x", "");
  std::filesystem::resize_file(path, (size_t{1} << 29) + 1);  // takes no disk, and is not read
  const base::MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  EXPECT_TRUE(contains(message_of<base::Error>([&] { load(folder, {.type = 1})->encode(text); }),
                       "text: must have a place to cut it within 536870912 bytes"));
}

TEST(SentencePiece, TextComesAsItIsDecoded) {
  const TempFolder folder;
  for (const bool dummy_prefix : {true, false}) {
    const auto tokenizer = load(folder, {.dummy_prefix = dummy_prefix});
    TextStream stream(*tokenizer);
    for (const std::string text : {"ab b", "  a", "b é 😀 ab", "😀", "", " ", "a\nb\0 é"}) {
      std::string found;
      for (const int32_t id : tokenizer->encode(text)) found += stream.push(id);
      EXPECT_EQ(found + stream.finish(), tokenizer->decode(tokenizer->encode(text))) << text;
    }
  }
}

TEST(SentencePiece, EncodesOnSeveralThreads) {
  const TempFolder folder;
  const auto tokenizer = load(folder);
  std::vector<Ids> found(4);
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < found.size(); ++i)
      threads.emplace_back([&, i] { found[i] = tokenizer->encode(mixed_text(50'000, 3)); });
  }
  for (const auto& ids : found) EXPECT_EQ(ids, tokenizer->encode(mixed_text(50'000, 3)));
}

TEST(SentencePiece, RefusesOtherFiles) {
  const TempFolder folder;
  const auto refusal = [&](std::string_view bytes) {
    return message_of<base::Error>([&] { load_tokenizer(folder.write("tokenizer.model", bytes)); });
  };
  const auto subject = (folder / "tokenizer.model").string() + ": ";
  for (const std::string& bytes : {""s, "text"s, model().substr(0, 500)}) {
    EXPECT_EQ(
        refusal(bytes),
        subject + "must be a SentencePiece model, got a file of another kind or a damaged one");
  }
  EXPECT_TRUE(contains(refusal("version https://git-lfs.github.com/spec/v1\n"),
                       "must be a SentencePiece model, got a Git LFS pointer; "));
  EXPECT_TRUE(begins(refusal(model({.end_piece = "<end>"})),
                     subject + "must have an end-of-sentence piece to end documents with"));
  EXPECT_TRUE(contains(message_of<base::Error>([&] { load_tokenizer(folder / "none"); }),
                       "must be bytes, tokenizer.json, tokenizer.model or vocab.json, got '"));
  EXPECT_TRUE(contains(message_of<base::Error>([&] { load_tokenizer(folder.path()); }),
                       "must be a regular file, got a folder"));
  EXPECT_TRUE(contains(message_of<base::Error>([&] { load(folder)->decode(Ids{266}); }),
                       "token id must be from 0 to 265, got 266"));
}

}  // namespace
}  // namespace bmojo::data
