#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "bmojo/base/error.h"
#include "bmojo/model/safetensors.h"
#include "tests/temp_folder.h"

namespace bmojo::model {
namespace {

using test::begins;
using test::contains;
using test::message_of;
using test::TempFolder;

std::string length_bytes(uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes;
}

std::string file_of(std::string_view header, size_t data_bytes = 0) {
  return length_bytes(header.size()) + std::string(header) + std::string(data_bytes, 'd');
}

// A header of tensors alone: `"name":{body}` each, with the braces and commas added here.
std::string tensors(std::initializer_list<std::string_view> entries) {
  std::string text = "{";
  for (const auto entry : entries) text += (text.size() > 1 ? "," : "") + std::string(entry);
  return text + "}";
}

std::string u8(std::string_view name, size_t begin, size_t end) {
  return fmt::format(R"("{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}})", name,
                     end - begin, begin, end);
}

std::string with_shape(std::string_view shape, std::string_view dtype = "U8") {
  return fmt::format(R"({{"w":{{"dtype":"{}","shape":{},"data_offsets":[0,4]}}}})", dtype, shape);
}

std::string with_offsets(std::string_view offsets) {
  return fmt::format(R"({{"w":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})", offsets);
}

struct Malformed {
  std::string name, bytes, message;
};

void check(const std::vector<Malformed>& cases) {
  const TempFolder folder;
  for (const auto& [name, bytes, expected] : cases) {
    const auto path = folder.write("x.safetensors", bytes);
    const auto message = message_of<base::Error>([&] { SafetensorsFile file(path); });
    EXPECT_TRUE(begins(message, path.string() + ": ")) << name;
    EXPECT_TRUE(contains(message, expected)) << name;
    EXPECT_FALSE(contains(message, "json.exception")) << name;
  }
}

TEST(MalformedSafetensors, FileAndHeaderLength) {
  const std::string good = file_of(tensors({u8("w", 0, 4)}), 4);
  check({
      {"empty file", "", "must be a safetensors file of at least 8 bytes, got 0"},
      {"cut in the length", good.substr(0, 7), "at least 8 bytes, got 7"},
      {"length alone", good.substr(0, 8),
       "header must be 53 bytes, as the file says, got 0; the file is cut off"},
      {"cut in the header", good.substr(0, 30),
       "header must be 53 bytes, as the file says, got 22"},
      {"length one too many", length_bytes(3) + "{}",
       "header must be 3 bytes, as the file says, got 2"},
      {"length over the cap", length_bytes(100'000'001) + "{}",
       "must be a safetensors file, got a file of another kind; its header would be longer than"},
      {"length of all ones", length_bytes(UINT64_MAX) + "{}", "got a file of another kind"},
      {"length that wraps", length_bytes(UINT64_MAX - 7) + "{}", "got a file of another kind"},
      {"another format", "PK\x03\x04 zip archive, not tensors", "got a file of another kind"},
      {"Git LFS pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 9\n",
       "must be a safetensors file, got a Git LFS pointer; fetch the file itself (git lfs pull)"},
      {"web page", "\n<!DOCTYPE html>\n<html>",
       "must be a safetensors file, got a web page; download the file itself"},
      {"short web page", "<html>", "got a web page"},
      {"empty header", file_of(""), "header must start with '{', got nothing"},
      {"spaces alone", file_of("    "), "header must start with '{', got ' '"},
      {"space before", file_of(" {}"), "header must start with '{', got ' '"},
      {"byte order mark", file_of("\xef\xbb\xbf{}"), "header must start with '{'"},
      {"list", file_of("[]"), "header must start with '{', got '['"},
      {"string", file_of("\"x\""), "header must start with '{', got '\"'"},
      {"newline first", file_of("\n{}"), "header must start with '{', got '\\x0a'"},
      {"newline after", file_of("{}\n"), "header must be padded with spaces, got another blank"},
      {"newline, then spaces", file_of("{}\n  "), "padded with spaces"},
      {"NUL padding", file_of(std::string("{}\0\0", 4)), "got a NUL at byte 3"},
      {"NUL, then text", file_of(std::string("{}\0{}", 5)), "got a NUL at byte 3"},
  });
}

TEST(MalformedSafetensors, Json) {
  const std::string entry = u8("w", 0, 4);
  check({
      {"brace alone", file_of("{"), "must be valid JSON, got unexpected end of input at byte 2"},
      {"cut", file_of("{" + entry, 4), "got unexpected end of input"},
      {"two objects", file_of("{}{}"), "got unexpected '{' at byte 3"},
      {"trailing text", file_of("{}x"), "got invalid literal at byte 3"},
      {"trailing comma", file_of("{" + entry + ",}", 4), "got unexpected '}'"},
      {"no comma", file_of("{" + entry + " " + u8("v", 4, 5) + "}", 5), "got unexpected string"},
      {"comment", file_of("{/* */}"), "got invalid literal at byte 2"},
      {"bad UTF-8 in a name", file_of(tensors({u8("\xff", 0, 4)}), 4), "ill-formed UTF-8 byte"},
      {"overlong UTF-8", file_of(tensors({u8("\xc0\x80", 0, 4)}), 4), "ill-formed UTF-8 byte"},
      {"cut UTF-8", file_of(tensors({u8("\xf0\x9f\x92", 0, 4)}), 4), "ill-formed UTF-8 byte"},
      {"bad UTF-8 in metadata", file_of("{\"__metadata__\":{\"a\":\"\xfe\"}}"), "ill-formed UTF-8"},
      {"lone surrogate", file_of(R"({"\udc00":1})"), "invalid string"},
      {"raw control character", file_of("{\"a\nb\":1}"), "control character U+000A"},
      {"overflowing number", file_of(with_shape("[1e999]"), 4), "number overflow"},
      {"very long name", file_of(tensors({u8(std::string(70'000, 'n'), 0, 4)}), 4),
       "header must hold at most 65536 bytes in a string, got more at byte 2"},
      {"very long number", file_of(with_shape("[" + std::string(2000, '1') + "]"), 4),
       "header must hold at most 1024 bytes between two marks"},
      {"very long blank", file_of("{" + std::string(2000, '\n') + "}"), "between two marks"},
      {"deep lists", file_of(R"({"w":)" + std::string(100'000, '[')),
       "tensor 'w': must be an object of dtype, shape and data_offsets, got a list"},
      {"deep objects", file_of(R"({"w":{"shape":{"a":{"a":{}}}}})"),
       "tensor 'w': shape must be a list of integers >= 0, got an object"},
      {"lists in a list", file_of(with_shape("[[1]]"), 4), "shape must be a list of integers"},
  });
}

TEST(MalformedSafetensors, Metadata) {
  std::string many = R"({"__metadata__":{)";
  for (int i = 0; i < 1025; ++i) many += fmt::format(R"("{}":"",)", i);
  many.back() = '}';
  check({
      {"a string", file_of(R"({"__metadata__":"x"})"), "__metadata__ must be an object of strings"},
      {"null", file_of(R"({"__metadata__":null})"), "object of strings, got null"},
      {"a number inside", file_of(R"({"__metadata__":{"a":1}})"),
       "__metadata__: 'a' must be a string, got 1"},
      {"an object inside", file_of(R"({"__metadata__":{"a":{}}})"),
       "__metadata__: 'a' must be a string, got an object"},
      {"a list inside", file_of(R"({"__metadata__":{"a":[]}})"), "must be a string, got a list"},
      {"true inside", file_of(R"({"__metadata__":{"a":true}})"), "must be a string, got true"},
      {"a name twice", file_of(R"({"__metadata__":{"a":"1","a":"1"}})"),
       "__metadata__: 'a' must appear once, got it twice"},
      {"itself twice", file_of(R"({"__metadata__":{},"__metadata__":{}})"),
       "__metadata__ must appear once, got it twice"},
      {"too many names", file_of(many + "}"), "__metadata__ must hold at most 1024 names"},
  });
}

TEST(MalformedSafetensors, TensorEntries) {
  check({
      {"a number", file_of(R"({"w":3})"), "tensor 'w': must be an object of dtype, shape and data"},
      {"null", file_of(R"({"w":null})"), "data_offsets, got null"},
      {"a string with newlines", file_of(R"({"w\n":"a\nb"})"),
       "tensor 'w\\x0a': must be an object of dtype, shape and data_offsets, got 'a\\x0ab'"},
      {"empty", file_of(R"({"w":{}})"), "tensor 'w': dtype must be given, got none"},
      {"no dtype", file_of(R"({"w":{"shape":[4],"data_offsets":[0,4]}})", 4),
       "tensor 'w': dtype must be given"},
      {"no shape", file_of(R"({"w":{"dtype":"U8","data_offsets":[0,4]}})", 4),
       "tensor 'w': shape must be given"},
      {"no offsets", file_of(R"({"w":{"dtype":"U8","shape":[4]}})", 4),
       "tensor 'w': data_offsets must be given"},
      {"unknown key", file_of(R"({"w":{"dtype":"U8","shape":[],"data_offsets":[0,1],"x":1}})", 1),
       "tensor 'w': must hold only dtype, shape and data_offsets, got 'x'"},
      {"dtype twice", file_of(R"({"w":{"dtype":"U8","dtype":"U8"}})"),
       "tensor 'w': dtype must appear once"},
      {"shape twice", file_of(R"({"w":{"shape":[],"shape":[]}})"),
       "tensor 'w': shape must appear once"},
      {"offsets twice", file_of(R"({"w":{"data_offsets":[0,1],"data_offsets":[0,1]}})"),
       "tensor 'w': data_offsets must appear once"},
      {"unknown dtype", file_of(with_shape("[4]", "F8_E4M3"), 4),
       "tensor 'w': dtype: must be one of F32, BF16"},
      {"small letters", file_of(with_shape("[4]", "u8"), 4), "dtype must be in capitals, got 'u8'"},
      {"dtype a number", file_of(R"({"w":{"dtype":32}})"), "dtype must be a string, got 32"},
      {"dtype a list", file_of(R"({"w":{"dtype":["U8"]}})"), "dtype must be a string, got a list"},
      {"shape a number", file_of(with_shape("4"), 4),
       "shape must be a list of integers >= 0, got 4"},
      {"shape a string", file_of(with_shape("\"4\""), 4), "integers >= 0, got '4'"},
      {"negative size", file_of(with_shape("[-4]"), 4),
       "shape must be a list of integers >= 0, got -4"},
      {"minus zero", file_of(with_shape("[4,-0]"), 4), "shape must be a list of integers >= 0"},
      {"float size", file_of(with_shape("[4.0]"), 4), "integers >= 0, got 4.0"},
      {"exponent size", file_of(with_shape("[4e0]"), 4), "integers >= 0, got 4e0"},
      {"string size", file_of(with_shape("[\"4\"]"), 4), "integers >= 0, got '4'"},
      {"null size", file_of(with_shape("[null]"), 4), "integers >= 0, got null"},
      {"size of 2^63", file_of(with_shape("[9223372036854775808]"), 4),
       "shape must hold numbers below 2^63, got 9223372036854775808"},
      {"size of 2^64", file_of(with_shape("[18446744073709551616]"), 4),
       "shape must be a list of integers >= 0, got 18446744073709551616"},
      {"nine sizes", file_of(with_shape("[1,1,1,1,1,1,1,1,4]"), 4),
       "shape must hold at most 8 numbers"},
      {"overflowing product", file_of(with_shape("[4294967296,4294967296]"), 4),
       "tensor 'w': shape must have a product that fits 64 bits, got [4294967296, 4294967296]"},
      {"overflowing bytes", file_of(with_shape("[4611686018427387905]", "F32"), 4),
       "tensor 'w': shape must have a product that fits 64 bits"},
      {"product wraps to the size", file_of(with_shape("[4611686018427387904,4,4]"), 4),
       "product that fits 64 bits"},
  });
}

TEST(MalformedSafetensors, Offsets) {
  check({
      {"a number", file_of(with_offsets("4"), 4), "data_offsets must be a list of integers >= 0"},
      {"none", file_of(with_offsets("[]"), 4),
       "data_offsets must be two numbers [begin, end], got 0"},
      {"one", file_of(with_offsets("[4]"), 4), "two numbers [begin, end], got 1"},
      {"three", file_of(with_offsets("[0,4,8]"), 4), "data_offsets must hold at most 2 numbers"},
      {"negative", file_of(with_offsets("[-4,0]"), 4), "integers >= 0, got -4"},
      {"float", file_of(with_offsets("[0,4.5]"), 4), "integers >= 0, got 4.5"},
      {"string", file_of(with_offsets("[0,\"4\"]"), 4), "integers >= 0, got '4'"},
      {"backwards", file_of(with_offsets("[4,0]"), 4),
       "must not end before they begin, got [4, 0]"},
      {"too small for the shape", file_of(with_offsets("[0,3]"), 3),
       "data_offsets must span 4 bytes, as U8 [4] takes, got [0, 3]"},
      {"too large for the shape", file_of(with_offsets("[0,5]"), 5), "must span 4 bytes"},
      {"wrong dtype for the bytes", file_of(with_shape("[4]", "F32"), 4), "must span 16 bytes"},
      {"gap at the start", file_of(tensors({u8("w", 1, 5)}), 5),
       "tensor 'w': data_offsets must leave no gap after byte 0, got [1, 5]"},
      {"gap between", file_of(tensors({u8("b", 6, 8), u8("a", 0, 4)}), 8),
       "tensor 'b': data_offsets must leave no gap after byte 4, got [6, 8]"},
      {"overlap", file_of(tensors({u8("a", 0, 4), u8("b", 3, 8)}), 8),
       "tensor 'b': data_offsets must not overlap the tensor before, which ends at 4, got [3, 8]"},
      {"same bytes twice", file_of(tensors({u8("a", 0, 4), u8("b", 0, 4)}), 4), "must not overlap"},
      {"empty tensor inside another", file_of(tensors({u8("a", 0, 4), u8("b", 2, 2)}), 4),
       "tensor 'b': data_offsets must not overlap"},
      {"empty tensor past the end", file_of(tensors({u8("a", 0, 4), u8("b", 5, 5)}), 4),
       "tensor 'b': data_offsets must leave no gap"},
      {"past the end", file_of(tensors({u8("a", 0, 4), u8("b", 4, 8)}), 7),
       "data must be 8 bytes for its tensors, got 7; the file is cut off"},
      {"no data at all", file_of(tensors({u8("w", 0, 4)})),
       "data must be 4 bytes for its tensors, got 0"},
      {"bytes left over", file_of(tensors({u8("w", 0, 4)}), 5),
       "data must be 4 bytes for its tensors, got 5"},
      {"data without tensors", file_of("{}", 1), "data must be 0 bytes for its tensors, got 1"},
      {"name twice", file_of(tensors({u8("w", 0, 4), u8("w", 4, 8)}), 8),
       "tensor 'w' must appear once, got it twice"},
      {"name twice by escape", file_of(tensors({u8("w", 0, 4), u8("\\u0077", 4, 8)}), 8),
       "tensor 'w' must appear once, got it twice"},
      {"name twice over the same bytes", file_of(tensors({u8("w", 0, 4), u8("w", 0, 4)}), 4),
       "tensor 'w' must appear once, got it twice"},
  });
}

TEST(MalformedSafetensors, TooManyTensors) {
  std::string header = "{";
  for (int i = 0; i <= 1'000'000; ++i) {
    header += "\"" + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)";
  }
  header.back() = '}';
  check({{"too many", file_of(header), "must hold at most 1000000 tensors, got more"}});
}

TEST(MalformedSafetensors, MissingFile) {
  const TempFolder folder;
  EXPECT_TRUE(contains(message_of<base::Error>([&] { SafetensorsFile file(folder / "no"); }),
                       "no: cannot be read: No such file"));
}

TEST(UnusualSafetensors, LegalFilesOpen) {
  const TempFolder folder;
  const std::vector<std::pair<std::string, size_t>> headers = {
      {"{}", 0},
      {"{}      ", 0},
      {"{ \"__metadata__\" : {} }", 0},
      {tensors({u8("", 0, 4)}), 4},
      {tensors({u8("b", 4, 8), u8("a", 0, 4)}), 8},
      {tensors({u8("empty", 4, 4), u8("w", 0, 4), u8("also", 0, 0), u8("more", 4, 4)}), 4},
      {with_shape("[1,1,1,1,1,1,2,2]"), 4},
      {R"({"w":{"data_offsets":[0,1],"shape":[],"dtype":"BOOL"},"__metadata__":{"":""}})", 1},
      {R"({"w":{"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[0,0]}})", 0},
      {tensors({u8(std::string(60'000, 'n'), 0, 4)}), 4},
  };
  for (const auto& [header, data_bytes] : headers) {
    const auto path = folder.write("x", file_of(header, data_bytes));
    EXPECT_NO_THROW(SafetensorsFile file(path)) << header.substr(0, 100);
  }
}

// Any change of bytes either leaves a legal file or throws Error; nothing else may happen.
TEST(MalformedSafetensors, RandomChangesThrowOnlyErrors) {
  const TempFolder folder;
  const std::string good = file_of(
      R"({"__metadata__":{"k":"v\u00e9"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)" +
          u8("b", 8, 12) + "}  ",
      12);
  std::mt19937 random(7);
  const std::string_view marks = "{}[]:,\"\\0129-.eE \n\xff\x80\xc3u";
  size_t refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = good;
    for (size_t edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % bytes.size();
      const char mark = marks[random() % marks.size()];
      if (random() % 3 == 0) {
        bytes.insert(at, 1, mark);
      } else {
        bytes[at] = mark;
      }
    }
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    const auto path = folder.write("x", bytes);
    refused += message_of<base::Error>([&] { SafetensorsFile file(path); }).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 2000u);
}

}  // namespace
}  // namespace bmojo::model
