#include "bmojo/eval/ids_line.h"

#include <gtest/gtest.h>

#include "bmojo/base/error.h"
#include "tests/temp_folder.h"

namespace bmojo::eval {
namespace {

std::string refusal(const std::string& line) {
  return test::message_of<base::Error>([&] { parse_ids_line(line, "ids:1"); });
}

TEST(IdsLine, HoldsWholeNumbers) {
  EXPECT_EQ(parse_ids_line(R"({"ids": [1, -2, 9223372036854775807]})", "ids:1"),
            (Ids{1, -2, INT64_MAX}));
  EXPECT_EQ(parse_ids_line(R"({"text": "a", "ids": []})", "ids:1"), Ids{});
  EXPECT_EQ(refusal("[1]"), "ids:1: must be {\"ids\": [..]}, got [1]");
  EXPECT_EQ(refusal(R"({"ids": [1.5]})"), "ids:1: ids must be whole numbers, got 1.5");
  EXPECT_EQ(refusal(R"({"ids": [9223372036854775808]})"),
            "ids:1: ids must be whole numbers, got 9223372036854775808");
}

// JSON leaves some control characters as they are; a long text is cut between characters.
TEST(IdsLine, WhatIsShownOfItIsPrintable) {
  EXPECT_EQ(refusal("[\"\x7f\xc2\x85\"]"),
            "ids:1: must be {\"ids\": [..]}, got [\"\\x7f\\u0085\"]");
  std::string euros;
  for (int i = 0; i < 40; ++i) euros += "€";
  EXPECT_EQ(refusal("[\"a" + euros + "\"]"),
            "ids:1: must be {\"ids\": [..]}, got [\"a" + euros.substr(0, 57) + "…");
}

}  // namespace
}  // namespace bmojo::eval
