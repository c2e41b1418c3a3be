#include "bmojo/data/shards.h"

#include <gtest/gtest.h>

#include <cstring>

#include "bmojo/base/digest.h"
#include "bmojo/base/error.h"
#include "bmojo/base/input.h"
#include "bmojo/base/random.h"
#include "tests/temp_folder.h"

namespace bmojo::data {
namespace {

namespace fs = std::filesystem;
using test::begins;
using test::contains;
using test::message_of;
using test::TempFolder;

using Ids = std::vector<int32_t>;
using Values = std::vector<int64_t>;

// Only what a shard stores of a tokenizer.
class Described final : public Tokenizer {
 public:
  explicit Described(int64_t vocab_size, std::string digest = "")
      : vocab_size_(vocab_size), digest_(std::move(digest)) {}
  Ids encode(std::string_view) const override { return {}; }
  std::string decode(std::span<const int32_t>) const override { return ""; }
  int64_t vocab_size() const override { return vocab_size_; }
  int32_t end_of_document() const override { return static_cast<int32_t>(vocab_size_ - 1); }
  const std::string& name() const override { return name_; }
  std::string digest() const override { return digest_; }
  size_t find_cut(std::string_view text, size_t) const override { return text.size(); }
  Ids encode_rest(std::string_view) const override { return {}; }

 private:
  std::string name_ = "described";
  int64_t vocab_size_;
  std::string digest_;
};

// Documents of the ids given, two bytes of text for each.
ShardInfo write(const fs::path& path, const Tokenizer& tokenizer,
                const std::vector<Ids>& documents) {
  ShardWriter writer(path, tokenizer);
  for (const auto& ids : documents) {
    writer.write(ids, 2 * std::ssize(ids));
    writer.end_document();
  }
  return writer.commit();
}

Values tokens_of(const TokenData& data) {
  Values out(static_cast<size_t>(data.num_tokens()));
  data.read(0, out);
  return out;
}

template <typename Number>
Number number_at(std::string_view bytes, size_t offset) {
  Number value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}
template <typename Number>
std::string with(std::string bytes, size_t offset, Number value) {
  return bytes.replace(offset, sizeof(value), reinterpret_cast<const char*>(&value), sizeof(value));
}

// The digest made right again.
std::string sealed(std::string bytes) {
  base::Digest digest;
  digest.update(std::string_view(bytes).substr(256));
  digest.update(std::string_view(bytes).substr(0, 192));
  const auto text = digest.text();
  bytes.replace(192, text.size(), text);
  return bytes;
}

// Three documents, eight tokens, ids of two bytes: the index begins at 320.
std::string small_shard(const TempFolder& folder) {
  write(folder / "small.tokens", Described(100), {{1, 2, 3}, {4}, {98}});
  auto bytes = base::read_text(folder / "small.tokens");
  fs::remove(folder / "small.tokens");
  return bytes;
}

std::string refusal(const TempFolder& folder, std::string_view bytes) {
  const auto path = folder.write("bad.tokens", bytes);
  const auto message = message_of<base::Error>([&] { TokenData data({path}); });
  if (!message.empty()) {
    EXPECT_TRUE(begins(message, path.string() + ": "));
  }
  return message;
}

TEST(Shards, LieInTheFileAsDocumented) {
  const TempFolder folder;
  const auto bytes = small_shard(folder);
  ASSERT_EQ(bytes.size(), 256u + 64 + 3 * 16);
  EXPECT_EQ(bytes.substr(0, 8), "BMOJOTOK");
  EXPECT_EQ(number_at<uint32_t>(bytes, 8), 1u);
  EXPECT_EQ(number_at<uint32_t>(bytes, 12), 2u);
  const std::vector<uint64_t> numbers = {100, 99, 8, 3, 10, 0};
  for (size_t i = 0; i < numbers.size(); ++i)
    EXPECT_EQ(number_at<uint64_t>(bytes, 16 + 8 * i), numbers[i]) << i;
  EXPECT_EQ(bytes.substr(64, 64), "described" + std::string(55, '\0'));
  EXPECT_EQ(bytes.substr(128, 64), std::string(64, '\0'));
  EXPECT_EQ(sealed(bytes), bytes);
  const std::vector<uint16_t> ids = {1, 2, 3, 99, 4, 99, 98, 99};
  for (size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(number_at<uint16_t>(bytes, 256 + 2 * i), ids[i]);
  EXPECT_EQ(bytes.substr(272, 48), std::string(48, '\0'));
  const std::vector<uint64_t> index = {4, 6, 6, 8, 8, 10};
  for (size_t i = 0; i < index.size(); ++i)
    EXPECT_EQ(number_at<uint64_t>(bytes, 320 + 8 * i), index[i]) << i;
}

TEST(Shards, RoundTripInBothWidths) {
  for (const int64_t vocab_size : {65536, 65537}) {
    const TempFolder folder;
    const Described tokenizer(vocab_size, "xxh3-128:0123");
    base::Random random({static_cast<uint64_t>(vocab_size)});
    std::vector<Ids> documents(50);
    Values expected;
    for (auto& ids : documents) {
      ids.resize(1 + random.below(40'000));  // beyond what is written at once
      for (auto& id : ids) id = static_cast<int32_t>(random.below(vocab_size - 1));
      expected.insert(expected.end(), ids.begin(), ids.end());
      expected.push_back(vocab_size - 1);
    }
    const auto info = write(folder / "x.tokens", tokenizer, documents);
    const TokenData data({folder / "x.tokens"});
    EXPECT_EQ(data.vocab_size(), vocab_size);
    EXPECT_EQ(data.end_of_document(), vocab_size - 1);
    EXPECT_EQ(data.tokenizer_name(), "described");
    EXPECT_EQ(data.tokenizer_digest(), "xxh3-128:0123");
    ASSERT_EQ(data.num_tokens(), std::ssize(expected));
    EXPECT_EQ(data.num_documents(), 50);
    EXPECT_EQ(tokens_of(data), expected);
    EXPECT_EQ(info.digest, data.shards()[0]->info().digest);
    data.verify();
    int64_t begin = 0, bytes = 0;
    for (int64_t i = 0; i < 50; ++i) {
      const int64_t size = std::ssize(documents[static_cast<size_t>(i)]);
      EXPECT_EQ(data.document(i), std::pair(begin, begin + size + 1));
      EXPECT_EQ(data.bytes_until(i), bytes);
      begin += size + 1;
      bytes += 2 * size;
    }
    EXPECT_EQ(data.bytes_until(50), bytes);
    EXPECT_EQ(data.num_bytes(), bytes);
  }
}

TEST(Shards, AreOneListOfDocuments) {
  const TempFolder folder;
  const Described tokenizer(100);
  fs::create_directory(folder / "data");
  write(folder / "data/b.tokens", tokenizer, {{3}, {4, 5}});
  write(folder / "data/a.tokens", tokenizer, {{1, 2}});
  folder.write("data/notes.txt", "left alone");
  write(folder / "c", tokenizer, {{6}});
  const TokenData data({folder / "data", folder / "c"});
  EXPECT_EQ(tokens_of(data), (Values{1, 2, 99, 3, 99, 4, 5, 99, 6, 99}));
  EXPECT_EQ(data.num_documents(), 4);
  EXPECT_EQ(data.document(2), (std::pair<int64_t, int64_t>(5, 8)));
  EXPECT_EQ(data.document(3), (std::pair<int64_t, int64_t>(8, 10)));
  EXPECT_EQ(data.bytes_until(2), 6);
  EXPECT_EQ(data.bytes_until(3), 10);
  EXPECT_EQ(data.num_bytes(), 12);
  for (int64_t begin = 0; begin <= 10; ++begin) {
    for (int64_t end = begin; end <= 10; ++end) {
      const auto all = tokens_of(data);
      Values part(static_cast<size_t>(end - begin));
      data.read(begin, part);
      EXPECT_EQ(part, Values(all.begin() + begin, all.begin() + end));
    }
  }
  EXPECT_NE(data.digest(), TokenData({folder / "data"}).digest());
  EXPECT_NE(data.digest(), TokenData({folder / "c", folder / "data"}).digest());
  EXPECT_EQ(data.digest(), TokenData({folder / "data", folder / "c"}).digest());
  EXPECT_EQ(data.tokenizer_file(), "");
}

TEST(Shards, KnowTheirTokenizersFile) {
  const TempFolder folder;
  base::Digest digest;
  digest.update("a model");
  write(folder / "x.tokens", Described(100, digest.text()), {{1}});
  EXPECT_EQ(TokenData({folder.path()}).tokenizer_file(), "");
  folder.write("tokenizer.model", "a model");
  const TokenData data({folder.path()});
  EXPECT_EQ(data.tokenizer_file(), folder / "tokenizer.model");
  data.verify();
  folder.write("tokenizer.model", "another");
  EXPECT_TRUE(begins(message_of<base::Error>([&] { data.verify(); }),
                     (folder / "tokenizer.model").string() + ": digest must be " + digest.text()));
}

TEST(Shards, ArePlacesOfTheirKind) {
  const TempFolder folder;
  EXPECT_FALSE(is_token_data(folder.path()));
  EXPECT_FALSE(is_token_data(folder / "none"));
  EXPECT_FALSE(is_token_data(folder.write("x.safetensors", "12345678{}")));
  EXPECT_TRUE(is_token_data(folder.write("other name", small_shard(folder))));
  EXPECT_FALSE(is_token_data(folder.path()));
  EXPECT_TRUE(is_token_data(folder.write("empty.tokens", "")));
  EXPECT_TRUE(is_token_data(folder.path()));
}

TEST(Shards, RefuseReadingOutside) {
  const TempFolder folder;
  const auto path = folder.write("x.tokens", small_shard(folder));
  const TokenData data({path});
  Values out(3);
  for (const int64_t begin : {int64_t{-1}, int64_t{6}, int64_t{9}, INT64_MIN, INT64_MAX}) {
    EXPECT_TRUE(contains(message_of<base::Error>([&] { data.read(begin, out); }),
                         "must be read within the 8 there are"));
    EXPECT_TRUE(contains(message_of<base::Error>([&] { data.shards()[0]->read(begin, out); }),
                         "must be read within the 8 there are"));
  }
  for (const int64_t i : {int64_t{-1}, int64_t{3}, INT64_MAX})
    EXPECT_TRUE(
        contains(message_of<base::Error>([&] { data.document(i); }), "must be from 0 to 2"));
  for (const int64_t i : {int64_t{-1}, int64_t{4}})
    EXPECT_TRUE(
        contains(message_of<base::Error>([&] { data.bytes_until(i); }), "must be from 0 to 3"));
}

TEST(Shards, MustAgreeInTheirTokenizer) {
  const TempFolder folder;
  write(folder / "a.tokens", Described(100, "one"), {{1}});
  for (const auto& other : {Described(100, "two"), Described(101, "one")}) {
    write(folder / "b.tokens", other, {{1}});
    EXPECT_TRUE(begins(message_of<base::Error>([&] { TokenData data({folder.path()}); }),
                       (folder / "b.tokens").string() + ": tokenizer must be that of " +
                           (folder / "a.tokens").string()));
  }
}

TEST(MalformedShards, MissingAndEmpty) {
  const TempFolder folder;
  EXPECT_TRUE(contains(message_of<base::Error>([&] { TokenData data({folder / "none"}); }),
                       "cannot be read: No such file"));
  EXPECT_TRUE(contains(message_of<base::Error>([&] { TokenData data({folder.path()}); }),
                       "folder must hold *.tokens shards, got none; bmojo tokenize"));
  EXPECT_TRUE(contains(message_of<base::Error>([&] { TokenData data(std::vector<fs::path>{}); }),
                       "at least one shard or folder"));
  EXPECT_TRUE(contains(refusal(folder, ""), "must be a token shard of at least 256 bytes, got 0"));
}

TEST(MalformedShards, EveryOtherLength) {
  const TempFolder folder;
  const auto bytes = small_shard(folder);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(contains(refusal(folder, bytes.substr(0, size)),
                         size < 256 ? "at least 256 bytes" : "damaged or cut off"));
  }
  EXPECT_TRUE(contains(refusal(folder, bytes + '\0'),
                       "must be of the right length for 8 tokens and 3 documents, got 369 bytes"));
}

TEST(MalformedShards, Fields) {
  const TempFolder folder;
  const auto bytes = small_shard(folder);
  const auto number = [&](size_t offset, uint64_t value) {
    return refusal(folder, with(bytes, offset, value));
  };
  EXPECT_TRUE(contains(refusal(folder, "X" + bytes.substr(1)), "got a file of another kind"));
  EXPECT_TRUE(contains(refusal(folder, "text"),
                       "must be a token shard, got a file of another kind; bmojo tokenize makes "
                       "shards of text"));
  EXPECT_TRUE(contains(refusal(folder, with(bytes, 8, uint32_t{2})), "version must be 1, got 2"));
  EXPECT_TRUE(contains(refusal(folder, with(bytes, 12, uint32_t{4})),
                       "token width must be 2 for a vocabulary of 100, got 4"));
  EXPECT_TRUE(contains(refusal(folder, with(bytes, 12, uint32_t{0})), "got 0"));
  EXPECT_TRUE(contains(number(16, 0), "vocab_size must be from 1 to 2147483647, got 0"));
  EXPECT_TRUE(contains(number(16, UINT64_MAX), "vocab_size must be from 1"));
  EXPECT_TRUE(contains(number(16, 65537), "token width must be 4"));
  EXPECT_TRUE(contains(number(24, 100), "end-of-document id must be below the vocabulary's 100"));
  EXPECT_TRUE(contains(number(56, 1), "bytes 56-63 must be 0, got 1"));
  EXPECT_TRUE(contains(refusal(folder, with(bytes, 64, '\0')), "tokenizer must have a name"));
  EXPECT_TRUE(contains(number(40, 0), "must hold at least one document, got none"));
  EXPECT_TRUE(contains(number(48, uint64_t{1} << 63), "bytes of text must fit 63 bits"));
}

TEST(MalformedShards, CountsThatOverflow) {
  const TempFolder folder;
  const auto bytes = small_shard(folder);
  // Those of the file plus what is lost when a product of 2 or 16 wraps.
  for (const uint64_t tokens : {(uint64_t{1} << 63) + 8, UINT64_MAX, uint64_t{1} << 62})
    EXPECT_TRUE(contains(refusal(folder, with(bytes, 32, tokens)), "damaged or cut off"));
  for (const uint64_t documents : {(uint64_t{1} << 60) + 3, UINT64_MAX, uint64_t{1} << 63}) {
    EXPECT_TRUE(contains(refusal(folder, with(bytes, 40, documents)), "have a token each"));
    const auto both = with(with(bytes, 40, documents), 32, UINT64_MAX);
    EXPECT_TRUE(contains(refusal(folder, both), "damaged or cut off"));
  }
}

TEST(MalformedShards, Index) {
  const TempFolder folder;
  const auto bytes = small_shard(folder);
  const auto entry = [&](size_t i, uint64_t value) {
    return refusal(folder, with(bytes, 320 + 8 * i, value));
  };
  EXPECT_TRUE(contains(entry(0, 0), "index must increase, got document 0 from (0, 0) to (0, 6)"));
  EXPECT_TRUE(contains(entry(2, 4), "index must increase, got document 1"));
  EXPECT_TRUE(contains(entry(2, 9), "index must increase, got document 2"));
  EXPECT_TRUE(contains(entry(2, UINT64_MAX), "index must increase"));
  EXPECT_TRUE(contains(entry(3, 5), "index must increase, got document 1"));
  EXPECT_TRUE(contains(entry(3, 11), "index must increase, got document 2"));
  EXPECT_TRUE(contains(entry(4, 7), "index must end at 8 tokens and 10 bytes of text, got 7 and"));
  EXPECT_TRUE(contains(entry(4, 9), "index must end at 8 tokens"));
  EXPECT_TRUE(contains(entry(5, 11), "index must end at 8 tokens and 10 bytes of text, got 8 and"));
}

TEST(MalformedShards, IdsOutsideTheVocabulary) {
  const TempFolder folder;
  const auto path =
      folder.write("x.tokens", sealed(with(small_shard(folder), 256 + 2 * 2, uint16_t{100})));
  const TokenData data({path});
  const auto expected =
      path.string() + ": token ids must be below the vocabulary's 100, got 100 at ";
  Values out(2);
  data.read(0, out);
  EXPECT_EQ(out, (Values{1, 2}));
  EXPECT_TRUE(begins(message_of<base::Error>([&] { data.read(1, out); }), expected + "token 2"));
  EXPECT_TRUE(begins(message_of<base::Error>([&] { data.verify(); }), expected + "token 2"));
}

TEST(MalformedShards, DocumentsWithoutTheirMark) {
  const TempFolder folder;
  const auto path =
      folder.write("x.tokens", sealed(with(small_shard(folder), 256 + 2 * 5, uint16_t{7})));
  EXPECT_TRUE(contains(message_of<base::Error>([&] { TokenData({path}).verify(); }),
                       "token 5 must be the end of a document, 99, got 7"));
}

TEST(MalformedShards, VerifyFindsEveryFlippedByte) {
  const TempFolder folder;
  const auto bytes = small_shard(folder);
  TokenData({folder.write("x.tokens", bytes)}).verify();
  for (size_t i = 0; i < bytes.size(); ++i) {
    // What follows the digest's text is read by nobody.
    if (i >= 192 + 41 && i < 256) continue;
    auto damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    const auto path = folder.write("x.tokens", damaged);
    EXPECT_NE(message_of<base::Error>([&] { TokenData({path}).verify(); }), "") << "byte " << i;
  }
}

TEST(MalformedShards, RandomChangesAreReadOrRefused) {
  const TempFolder folder;
  const auto bytes = small_shard(folder);
  base::Random random({7});
  for (int round = 0; round < 2000; ++round) {
    auto damaged = bytes;
    for (uint64_t change = random.below(4) + 1; change > 0; --change) {
      // Numbers of the header, tokens and index: text says nothing about sizes.
      const size_t at = random.below(2) == 0 ? 8 + random.below(56) : 256 + random.below(112);
      damaged[at] = static_cast<char>(random.bits());
    }
    damaged.resize(random.below(8) == 0 ? random.below(damaged.size() + 1) : damaged.size());
    const auto path = folder.write("x.tokens", damaged);
    message_of<base::Error>([&] {
      const TokenData data({path});
      for (int64_t i = 0; i < data.num_documents(); ++i) {
        const auto [begin, end] = data.document(i);
        Values out(static_cast<size_t>(end - begin));
        data.read(begin, out);
        for (const auto id : out) ASSERT_LT(id, data.vocab_size());
      }
    });
  }
}

TEST(ShardWriter, RefusesWhatItCouldNotReadBack) {
  const TempFolder folder;
  const Described tokenizer(100);
  {
    ShardWriter writer(folder / "x.tokens", tokenizer);
    EXPECT_TRUE(
        contains(message_of<base::Error>([&] { writer.commit(); }), "before commit, got none"));
    EXPECT_TRUE(
        contains(message_of<base::Error>([&] { writer.end_document(); }), "must have tokens"));
    for (const int32_t id : {-1, 100}) {
      EXPECT_TRUE(contains(message_of<base::Error>([&] { writer.write(Ids{5, id, 6}, 1); }),
                           fmt::format("token ids must be from 0 to 99, got {}", id)));
    }
    EXPECT_TRUE(contains(message_of<base::Error>([&] { writer.write(Ids{1}, -1); }), "at least 0"));
    writer.write(Ids{1}, 1);
    writer.end_document();
    writer.write(Ids{1}, 1);
    EXPECT_TRUE(
        contains(message_of<base::Error>([&] { writer.commit(); }), "got one that is open"));
  }
  EXPECT_EQ(folder.num_entries(), 0u);
  EXPECT_TRUE(contains(message_of<base::Error>([&] {
                         write(folder / "x.tokens", Described(9, std::string(64, 'x')), {{1}});
                       }),
                       "digest of the tokenizer must be shorter than 64 bytes"));
  EXPECT_EQ(folder.num_entries(), 0u);
}

}  // namespace
}  // namespace bmojo::data
