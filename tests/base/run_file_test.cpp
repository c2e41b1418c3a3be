#include "bmojo/base/run_file.h"

#include <gtest/gtest.h>

#include <string>

#include "bmojo/base/error.h"
#include "tests/temp_folder.h"

namespace bmojo::base {
namespace {

TEST(RunFile, TablesHoldTheirItems) {
  const auto tables =
      parse_tables("# first\n[base] # a comment\na = 1\n\n[family.x-1]\na = [2,\n3]\n[grid]", "s");
  ASSERT_EQ(tables.size(), 3u);
  EXPECT_EQ(tables[0].name, "base");
  EXPECT_EQ(tables[1].name, "family.x-1");
  EXPECT_EQ(tables[1].where, "s:5");
  ASSERT_EQ(tables[1].items.size(), 1u);
  EXPECT_EQ(tables[1].items[0].values, (std::vector<std::string>{"2", "3"}));
  EXPECT_EQ(tables[1].items[0].where, "s:6");
  EXPECT_TRUE(tables[2].items.empty());
}

TEST(RunFile, OtherTablesAreRefusedByLine) {
  const auto refused = [](const char* text) -> std::string {
    try {
      parse_tables(text, "s");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refused("a = 1\n[base]"), "s:1: must begin with a table such as [base], got 'a = 1'");
  EXPECT_EQ(refused("[a]\n[b]\n[a]"), "s:3: table 'a' must stand once, got it again after s:1");
  EXPECT_EQ(refused("[a]\nb = 1\nb = 2"), "s:3: key 'b' must stand once, got it again after s:2");
  EXPECT_EQ(refused("[]"), "s:1: table must be a name in [ ], got '[]'");
  EXPECT_EQ(refused("[[a]]"), "s:1: table must be a name in [ ], got '[[a]]'");
  EXPECT_EQ(refused("[a] b = 1"), "s:1: line must end behind the table's name, got 'b = 1'");
}

// TOML has them as escapes only, and so have we: what is read can be written again.
TEST(RunFile, ControlCharactersAreRefused) {
  for (const char byte : {'\0', '\x01', '\r', '\x7f'}) {
    const std::string text = std::string("a = 1\nb = \"x") + byte + "\"";
    EXPECT_EQ(
        test::message_of<Error>([&] { parse_run_file(text, "s"); }),
        fmt::format("s:2: text must hold no control characters but tabs, got \\x{:02x}", byte));
  }
  const std::string kept = "a \"b\"\t\\ \n\x01 é";
  EXPECT_EQ(parse_run_file("a = " + toml_text(kept), "s")[0].values[0], kept);
  EXPECT_EQ(parse_run_file("a = 'x\ty'", "s")[0].values[0], "x\ty");
}

}  // namespace
}  // namespace bmojo::base
