#include "bmojo/base/json.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"
#include "tests/temp_folder.h"

namespace bmojo::base {
namespace {

using test::begins;
using test::contains;
using test::message_of;

std::string nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(ParseJson, KeepsOrderTypesAndNesting) {
  const std::string text =
      R"({"z":1,"a":-2,"m":[true,false,null,"é\n",{"x":{},"y":[]}],"big":18446744073709551615,"f":0.5})";
  const Json json = parse_json(text, "test");
  EXPECT_EQ(json.dump(), text);
  EXPECT_TRUE(json["z"].is_number_unsigned());
  EXPECT_TRUE(json["a"].is_number_integer());
  EXPECT_TRUE(json["f"].is_number_float());
  EXPECT_EQ(json["m"][3].get<std::string>(), "é\n");
}

TEST(ParseJson, ScalarsAndBlanks) {
  EXPECT_EQ(parse_json(" 7 \n", "test"), Json(7));
  EXPECT_EQ(parse_json("\"x\"", "test"), Json("x"));
  EXPECT_TRUE(parse_json("null", "test").is_null());
}

TEST(ParseJson, SameNameInDifferentObjectsIsFine) {
  EXPECT_EQ(parse_json(R"({"a":{"a":[{"a":1},{"a":2}]}})", "test")["a"]["a"][1]["a"], 2);
}

TEST(ParseJson, DepthOf64IsTheLast) {
  EXPECT_EQ(parse_json(nested(64), "test").size(), 1u);
  EXPECT_EQ(message_of<Error>([] { parse_json(nested(65), "test"); }),
            "test: must nest at most 64 deep, got more");
}

struct BadJson {
  std::string name, text, message;
};

TEST(ParseJson, RefusesMalformedText) {
  const std::vector<BadJson> cases = {
      {"empty", "", "must be valid JSON, got unexpected end of input at byte 1"},
      {"blank", "  \n", "unexpected end of input at byte 4"},
      {"open object", R"({"a":1)", "unexpected end of input at byte 7"},
      {"open list", "[1,", "unexpected end of input at byte 4"},
      {"open string", "\"abc", "invalid string: missing closing quote at byte 5"},
      {"trailing text", "{} x", "got invalid literal at byte 4"},
      {"second value", "{}{}", "got unexpected '{' at byte 3"},
      {"NUL then text", std::string("{}\0{}", 5), "got a NUL at byte 3"},
      {"trailing comma in list", "[1,]", "got unexpected ']' at byte 4"},
      {"trailing comma in object", R"({"a":1,})", "got unexpected '}' at byte 8"},
      {"number as name", "{1:2}", "got unexpected number literal at byte 2"},
      {"single quotes", "{'a':1}", "got invalid literal at byte 2"},
      {"comment", "{/**/}", "got invalid literal at byte 2"},
      {"NaN", "[NaN]", "got invalid literal at byte 2"},
      {"leading zero", "[01]", "got unexpected number literal at byte 3"},
      {"lone minus", "[-]", "got invalid number at byte 3"},
      {"overflowing number", "[1e999]", "got number overflow parsing '1e999' at byte 6"},
      {"raw newline", "[\"a\nb\"]", "invalid string: control character U+000A"},
      {"bad escape", R"(["\x41"])", "forbidden character after backslash at byte 4"},
      {"lone surrogate", R"(["\ud800"])", "surrogate U+D800..U+DBFF must be followed"},
      {"bad UTF-8", "[\"\xff\"]", "invalid string: ill-formed UTF-8 byte at byte 3"},
      {"overlong UTF-8", "[\"\xc0\xaf\"]", "ill-formed UTF-8 byte"},
      {"cut UTF-8", "[\"\xe2\x82\"]", "ill-formed UTF-8 byte"},
      {"encoded surrogate", "[\"\xed\xa0\x80\"]", "ill-formed UTF-8 byte"},
      {"duplicate name", R"({"a":1,"b":2,"a":3})", "'a' must appear once, got it twice"},
      {"duplicate by escape", R"({"a":1,"\u0061":3})", "'a' must appear once, got it twice"},
      {"duplicate inside", R"([{"x":{"a":1,"a":1}}])", "'a' must appear once, got it twice"},
      {"duplicate with newline", R"({"a\nb":1,"a\nb":1})", "'a\\x0ab' must appear once"},
      {"too deep", std::string(100'000, '['), "must nest at most 64 deep"},
      {"too deep by names",
       [] {
         std::string text;
         for (int i = 0; i < 1000; ++i) text += R"({"a":)";
         return text;
       }(),
       "must nest at most 64 deep"},
  };
  for (const auto& [name, text, expected] : cases) {
    const auto message = message_of<Error>([&] { parse_json(text, "config.json"); });
    EXPECT_TRUE(begins(message, "config.json: ")) << name;
    EXPECT_TRUE(contains(message, expected)) << name;
    EXPECT_FALSE(contains(message, "json.exception")) << name;
  }
}

TEST(ParseJson, SaysWhatAMixUpIs) {
  EXPECT_EQ(
      message_of<Error>([] { parse_json("version https://git-lfs.github.com/x", "test"); }),
      "test: must be valid JSON, got a Git LFS pointer; fetch the file itself (git lfs pull)");
  EXPECT_EQ(message_of<Error>([] { parse_json("\n<html>", "test"); }),
            "test: must be valid JSON, got a web page; download the file itself");
}

TEST(ParseJson, ManyNamesTakeNoQuadraticTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += fmt::format("\"token {}\":{},", i, i);
  text.back() = '}';
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(parse_json(text, "test").size(), 200'000u);
  // Quadratic would be minutes; the bound leaves room for sanitizers.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(Printable, EscapesAndCuts) {
  EXPECT_EQ(printable("plain é"), "plain é");
  EXPECT_EQ(printable(std::string_view("a\n\x1b\x7f\0b", 6)), "a\\x0a\\x1b\\x7f\\x00b");
  EXPECT_EQ(printable("\xc2\x9b"), "\\u009b");
  EXPECT_EQ(printable("abcdef", 3), "abc…");
  EXPECT_EQ(printable("abé", 3), "ab…");
  EXPECT_EQ(printable("abé", 4), "abé");
  EXPECT_EQ(in_quotes("x"), "'x'");
}

}  // namespace
}  // namespace bmojo::base
