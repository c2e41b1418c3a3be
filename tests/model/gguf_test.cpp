#include <gtest/gtest.h>

#include <random>

#include "bmojo/base/error.h"
#include "bmojo/model/gguf_header.h"
#include "tests/model/gguf_file.h"
#include "tests/temp_folder.h"

namespace bmojo::model {
namespace {

using namespace test;

constexpr uint32_t kF32Type = 0, kF16Type = 1, kQ8Type = 8;

GgufHeader parse(std::string_view bytes) {
  return parse_gguf_header(std::as_bytes(std::span(bytes)), "file");
}

GgufFile good() {
  return {.fields = {string_field("general.architecture", "llama"), field("a.b", kU32, u32(7)),
                     array_field("list", kString, 2, text("one") + text("")),
                     array_field("flags", kBool, 2, std::string("\0\1", 2))},
          .tensors = {tensor("b", {32, 2}, kQ8Type, 32), tensor("a", {3, 2}, kF32Type, 0)},
          .data_bytes = 32 + 68};
}

TEST(Gguf, ReadsFieldsAndTensors) {
  for (const uint32_t version : {2u, 3u}) {
    auto file = good();
    file.version = version;
    const auto bytes = file.bytes();
    const auto header = parse(bytes);
    ASSERT_EQ(header.fields.size(), 4u);
    EXPECT_EQ(header.fields.front().key, "a.b");  // sorted
    EXPECT_EQ(header.find("nothing"), nullptr);
    const auto list = strings_of(*header.find("list"));
    EXPECT_EQ(list, (std::vector<std::string_view>{"one", ""}));
    EXPECT_EQ(header.find("flags")->count, 2u);

    ASSERT_EQ(header.tensors.size(), 2u);
    const auto *a = header.find_tensor("a"), *b = header.find_tensor("b");
    EXPECT_EQ(a->shape, (Shape{2, 3}));  // rows first
    EXPECT_EQ(b->shape, (Shape{2, 32}));
    EXPECT_EQ(b->type->name, "Q8_0");
    const size_t data = bytes.size() - file.data_bytes;
    EXPECT_EQ(a->begin, data);
    EXPECT_EQ(a->end, data + 24);
    EXPECT_EQ(b->begin, data + 32);
    EXPECT_EQ(b->end, bytes.size());
    EXPECT_EQ(header.find_tensor("c"), nullptr);
  }
}

TEST(Gguf, UnusualButLegal) {
  GgufFile none;
  EXPECT_NO_THROW(parse(none.bytes()));
  auto file = good();
  file.data_bytes = 128;  // filled up to a multiple of the alignment
  EXPECT_NO_THROW(parse(file.bytes()));
  for (const uint32_t alignment : {1u, 8u, 4096u}) {
    GgufFile aligned{.fields = {field("general.alignment", kU32, u32(alignment))},
                     .tensors = {tensor("a", {3}, kF16Type, 0),
                                 tensor("b", {1}, kF16Type, alignment < 6 ? 6 : alignment)},
                     .data_bytes = (alignment < 6 ? 6 : alignment) + 2,
                     .alignment = alignment};
    EXPECT_NO_THROW(parse(aligned.bytes())) << alignment;
  }
}

struct Malformed {
  std::string name;
  GgufFile file;
  std::string message;
};

GgufFile with_field(const std::string& field) { return {.fields = {field}}; }
GgufFile with_tensors(const std::vector<std::string>& tensors, size_t data_bytes) {
  return {.tensors = tensors, .data_bytes = data_bytes};
}
GgufFile with_tensor(const std::string& tensor, size_t data_bytes = 32) {
  return with_tensors({tensor}, data_bytes);
}

void check(const std::vector<Malformed>& cases) {
  for (const auto& [name, file, expected] : cases) {
    const auto message = message_of<base::Error>([&] { parse(file.bytes()); });
    EXPECT_TRUE(begins(message, "file: ")) << name;
    EXPECT_TRUE(contains(message, expected)) << name;
  }
}

TEST(MalformedGguf, FileAndCounts) {
  check({
      {"magic", {.magic = "GGUf"}, "must be a GGUF file, got one that begins with 'GGUf'"},
      {"older magic", {.magic = "ggjt"}, "begins with 'ggjt'"},
      {"version 1", {.version = 1}, "must be a GGUF file of version 2 or 3, got version 1"},
      {"version 4", {.version = 4}, "got version 4"},
      {"version 0", {.version = 0}, "got version 0"},
      {"big-endian", {.version = 0x03000000}, "got one for big-endian machines"},
  });
  const auto refused = [](uint64_t tensors, uint64_t fields) {
    const auto bytes = "GGUF" + u32(3) + u64(tensors) + u64(fields);
    return message_of<base::Error>([&] { parse(bytes); });
  };
  EXPECT_EQ(refused(1'000'001, 0), "file: must hold at most 1000000 tensors, got 1000001");
  EXPECT_EQ(refused(UINT64_MAX, 0),
            "file: must hold at most 1000000 tensors, got 18446744073709551615");
  EXPECT_EQ(refused(0, 65'537), "file: must hold at most 65536 fields, got 65537");
  EXPECT_EQ(refused(0, 1),
            "file: key must take 8 bytes at byte 24, got 0; the file is cut off or damaged");
  EXPECT_TRUE(contains(refused(1, 0), "tensor name must take 8 bytes at byte 24, got 0"));
}

TEST(MalformedGguf, Fields) {
  check({
      {"empty key", with_field(field("", kU8, "1")), "key must be printable ASCII, got ''"},
      {"blank in a key", with_field(field("a b", kU8, "1")), "printable ASCII, got 'a b'"},
      {"line break in a key", with_field(field("a\n", kU8, "1")), "got 'a\\x0a'"},
      {"bad UTF-8 in a key", with_field(field("\xff", kU8, "1")), "key must be printable ASCII"},
      {"long key", with_field(field(std::string(65'536, 'k'), kU8, "1")),
       "key must be at most 65535 bytes, got 65536"},
      {"key past the end", with_field(u64(1000) + "abc"), "key must take 1000 bytes at byte 32"},
      {"key length of all ones", with_field(u64(UINT64_MAX)), "got 18446744073709551615"},
      {"kind 13", with_field(field("k", 13, "1")), "k must be of a type from 0 to 12, got 13"},
      {"kind of all ones", with_field(field("k", UINT32_MAX, "1")), "got 4294967295"},
      {"no kind", with_field(text("k")), "k must take 4 bytes"},
      {"cut number", with_field(field("k", kU64, "1234567")),
       "k must take 8 bytes at byte 37, got 7"},
      {"cut string", with_field(field("k", kString, u64(4) + "abc")), "k must take 4 bytes"},
      {"string length that wraps", with_field(field("k", kString, u64(UINT64_MAX - 20) + "abc")),
       "k must be at most 100000000 bytes, got 18446744073709551595"},
      {"bool of 2", with_field(field("k", kBool, "\2")), "k must be 0 or 1, got 2"},
      {"bool of 2 in an array", with_field(array_field("k", kBool, 2, "\1\2")),
       "k must be 0 or 1, got 2"},
      {"array of arrays", with_field(array_field("k", kArray, 1, u32(kU8) + u64(0))),
       "k must be an array of plain values, got an array of arrays"},
      {"array of kind 13", with_field(array_field("k", 13, 1, "1")), "type from 0 to 12, got 13"},
      {"array too long", with_field(array_field("k", kU32, 3, u64(0))), "k must take 12 bytes"},
      {"array whose size wraps", with_field(array_field("k", kU64, uint64_t{1} << 61, u64(0))),
       "k must have a length that fits a file, got 2305843009213693952"},
      {"array whose end wraps", with_field(array_field("k", kU8, UINT64_MAX - 10, "1234")),
       "k must take 18446744073709551605 bytes at byte 49, got 4"},
      {"endless strings", with_field(array_field("k", kString, UINT64_MAX, text("a"))),
       "k must take 8 bytes"},
      {"cut string in an array", with_field(array_field("k", kString, 1, u64(9) + "a")),
       "k must take 9 bytes"},
      {"key twice",
       {.fields = {field("k", kU8, "1"), field("j", kU8, "1"), field("k", kI8, "1")}},
       "key 'k' must appear once, got it twice"},
      {"alignment of 0", with_field(field("general.alignment", kU32, u32(0))),
       "general.alignment must be a power of two up to 1048576, got 0"},
      {"alignment of 24", with_field(field("general.alignment", kU32, u32(24))), "got 24"},
      {"alignment of 2^31", with_field(field("general.alignment", kU32, u32(1u << 31))),
       "got 2147483648"},
      {"alignment as u64", with_field(field("general.alignment", kU64, u64(32))),
       "general.alignment must be of type u32, got a u64"},
  });
}

TEST(MalformedGguf, Tensors) {
  check({
      {"empty name", with_tensor(tensor("", {8}, 0, 0)), "tensor name must be printable ASCII"},
      {"long name", with_tensor(tensor(std::string(65, 'n'), {8}, 0, 0)),
       "tensor name must be at most 64 bytes, got 65"},
      {"line break in a name", with_tensor(tensor("a\nb", {8}, 0, 0)), "got 'a\\x0ab'"},
      {"no dimensions", with_tensor(tensor("w", {}, 0, 0)),
       "tensor 'w' must have 1 to 4 dimensions, got 0"},
      {"five dimensions", with_tensor(tensor("w", {8, 1, 1, 1, 1}, 0, 0)),
       "must have 1 to 4 dimensions, got 5"},
      {"size of 0", with_tensor(tensor("w", {8, 0}, 0, 0)),
       "tensor 'w' must have dimensions from 1 to 2^63 - 1, got 0"},
      {"size of 2^63", with_tensor(tensor("w", {uint64_t{1} << 63}, 0, 0)),
       "got 9223372036854775808"},
      {"product that overflows", with_tensor(tensor("w", {1ull << 32, 1ull << 32}, 0, 0)),
       "tensor 'w' must have a size that fits a file, got [4294967296, 4294967296]"},
      {"product that wraps to the size", with_tensor(tensor("w", {1ull << 62, 4, 8}, 0, 0)),
       "must have a size that fits a file"},
      {"bytes that overflow", with_tensor(tensor("w", {(1ull << 62) + 2}, 0, 0)),
       "must have a size that fits a file"},
      {"part of a block", with_tensor(tensor("w", {33}, kQ8Type, 0)),
       "tensor 'w' must have rows of a multiple of 32 numbers, as Q8_0 has them, got [33]"},
      {"block over two rows", with_tensor(tensor("w", {16, 2}, kQ8Type, 0), 34),
       "must have rows of a multiple of 32 numbers"},
      {"type Q2_K", with_tensor(tensor("w", {256}, 10, 0)),
       "tensor 'w' must be of type F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, "
       "got Q2_K"},
      {"type IQ4_XS", with_tensor(tensor("w", {256}, 23, 0)), "got IQ4_XS"},
      {"type F64", with_tensor(tensor("w", {4}, 28, 0)), "got F64"},
      {"type MXFP4", with_tensor(tensor("w", {32}, 39, 0)), "got MXFP4"},
      {"type that is none", with_tensor(tensor("w", {4}, 99, 0)), "got number 99"},
      {"name twice", with_tensors({tensor("w", {8}, 0, 0), tensor("w", {8}, 0, 32)}, 64),
       "tensor 'w' must appear once, got it twice"},
      {"gap at the start", with_tensor(tensor("w", {8}, 0, 32), 64),
       "tensor 'w' must begin at 0, the next multiple of 32 behind the tensor before, got 32"},
      {"gap between", with_tensors({tensor("v", {8}, 0, 0), tensor("w", {8}, 0, 64)}, 96),
       "tensor 'w' must begin at 32, the next multiple of 32 behind the tensor before, got 64"},
      {"overlap", with_tensors({tensor("v", {16}, 0, 0), tensor("w", {8}, 0, 32)}, 64),
       "tensor 'w' must begin at 64"},
      {"same place", with_tensors({tensor("v", {8}, 0, 0), tensor("w", {8}, 0, 0)}, 32),
       "must begin at 32"},
      {"not aligned", with_tensors({tensor("v", {3}, 0, 0), tensor("w", {8}, 0, 12)}, 44),
       "tensor 'w' must begin at 32, the next multiple of 32 behind the tensor before, got 12"},
      {"offset that wraps", with_tensor(tensor("w", {8}, 0, UINT64_MAX - 8)),
       "tensor 'w' must lie within the file, got offset 18446744073709551607"},
      {"past the end", with_tensor(tensor("w", {8}, 0, 0), 31),
       "tensor 'w' must end within the data, which has 31 bytes, got 32; the file is cut off"},
      {"no data", with_tensor(tensor("w", {8}, 0, 0), 0), "the file is cut off"},
      {"bytes left over", with_tensor(tensor("w", {8}, 0, 0), 33),
       "data must be 32 bytes for its tensors, got 33"},
      {"data without tensors", {.data_bytes = 1}, "data must be 0 bytes for its tensors, got 1"},
  });
}

// A file whose header does not end is refused without being read to its end.
TEST(MalformedGguf, HeaderOverTheCap) {
  const uint64_t length = 90'000'000;
  GgufFile file{.fields = {string_field("a", std::string(length, 'x')),
                           string_field("b", std::string(length, 'x'))}};
  check({{"two long strings", file, "header must be at most 100000000 bytes, got more at b"}});
}

TEST(MalformedGguf, EveryTruncation) {
  const auto bytes = good().bytes();
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_TRUE(begins(message_of<base::Error>([&] { parse(bytes.substr(0, length)); }), "file: "))
        << length;
}

// Any change of bytes either leaves a legal file, and one whose tensors lie within it, or throws
// Error; nothing else may happen.
TEST(MalformedGguf, RandomChangesThrowOnlyErrors) {
  const auto whole = good().bytes();
  std::mt19937 random(7);
  const std::string_view marks("\0\1\2\4\7\10\11\14\17\36\40\200\377", 13);
  size_t refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    auto bytes = whole;
    for (size_t edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % (bytes.size() - 100);  // the header alone
      const char mark = marks[random() % marks.size()];
      if (random() % 4 == 0) {
        bytes.insert(at, 1, mark);
      } else {
        bytes[at] = mark;
      }
    }
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    refused += message_of<base::Error>([&] {
                 for (const auto& tensor : parse(bytes).tensors) {
                   EXPECT_LE(tensor.begin, tensor.end);
                   EXPECT_LE(tensor.end, bytes.size());
                 }
               }).empty()
                   ? 0
                   : 1;
  }
  EXPECT_GT(refused, 12'000u);
  EXPECT_LT(refused, 20'000u);
}

}  // namespace
}  // namespace bmojo::model
