#include "bmojo/base/input.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/nearest.h"
#include "bmojo/base/number.h"
#include "tests/temp_folder.h"

namespace bmojo::base {
namespace {

using test::begins;
using test::contains;
using test::message_of;
using test::TempFolder;

std::vector<std::string> lines_of(const std::string& path) {
  LineReader reader(path);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) lines.push_back(line);
  return lines;
}

TEST(ReadInput, IsTheWholeFile) {
  const TempFolder folder;
  const std::string text(200'000, 'x');
  EXPECT_EQ(read_text(folder.write("x", text)), text);
  EXPECT_EQ(read_text(folder.write("empty", "")), "");
  EXPECT_EQ(read_text(folder.write("three", "abc"), 3), "abc");
  EXPECT_TRUE(contains(message_of<Error>([&] { read_text(folder / "three", 2); }),
                       "three: must be at most 2 bytes, got more"));
}

TEST(ReadInput, RefusesWhatIsNoRegularFile) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const auto refusal = [](const std::filesystem::path& path) {
    return message_of<Error>([&] { read_text(path); });
  };
  EXPECT_EQ(refusal(folder / "pipe"),
            (folder / "pipe").string() +
                ": must be a regular file, got a device or pipe; write it to a file first");
  EXPECT_TRUE(contains(refusal("/dev/zero"), "must be a regular file, got a device or pipe"));
  EXPECT_EQ(refusal(folder.path()),
            folder.path().string() + ": must be a regular file, got a folder");
  EXPECT_TRUE(contains(refusal(folder / "no"), "cannot be read: No such file"));
  // A regular file whose first byte cannot be read.
  EXPECT_TRUE(contains(message_of<RunError>([] { read_text("/proc/self/mem"); }),
                       "/proc/self/mem: reading failed: Input/output error"));
}

TEST(LineReader, GivesEveryLine) {
  const TempFolder folder;
  const std::string wide(100'000, 'w');  // more than is read at once
  const auto path = folder.write("x", "a\n\n" + wide + "\nlast").string();
  EXPECT_EQ(lines_of(path), (std::vector<std::string>{"a", "", wide, "last"}));
  EXPECT_EQ(lines_of(folder.write("ended", "a\n").string()), std::vector<std::string>{"a"});
  EXPECT_TRUE(lines_of(folder.write("empty", "").string()).empty());
}

TEST(LineReader, BoundsALineAndSaysWhere) {
  const TempFolder folder;
  const std::string most(LineReader::kMaxLineBytes, 'x');
  const auto path = folder.write("x", "a\n" + most + "\n" + most + "x\n").string();
  LineReader reader(path);
  std::string line;
  EXPECT_TRUE(reader.next(line) && reader.next(line));
  EXPECT_EQ(line.size(), most.size());
  EXPECT_EQ(reader.where(), path + ":2");
  EXPECT_EQ(message_of<Error>([&] { reader.next(line); }),
            path + ":3: line must be at most 67108864 bytes, got more");
}

TEST(LineReader, RefusesWhatIsNoRegularFile) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(contains(message_of<Error>([&] { lines_of(folder / "pipe"); }),
                       "must be a regular file, got a device or pipe; give - and pipe it in"));
  EXPECT_TRUE(contains(message_of<Error>([&] { lines_of(folder.path()); }), "got a folder"));
  EXPECT_TRUE(contains(message_of<RunError>([&] { lines_of("/proc/self/mem"); }),
                       "/proc/self/mem: reading failed: "));
}

TEST(MixUp, KnowsPointersAndWebPages) {
  EXPECT_TRUE(begins(mix_up("version https://git-lfs.github.com/spec/v1\n"), "a Git LFS pointer"));
  for (const auto* page : {"<!DOCTYPE html>", "\r\n\t <!doctype HTML>", "<html>", " <HTML lang=x"})
    EXPECT_TRUE(begins(mix_up(page), "a web page; ")) << page;
  for (const auto* text : {"", " ", "{", "<", "version 1", "<!DOC", "html"})
    EXPECT_EQ(mix_up(text), "") << text;
}

TEST(Nearest, IsWhatWasMeant) {
  const std::vector<std::string> names = {"set", "seed", "steps", "model", "temperature", "json"};
  for (const auto& [word, meant] : std::vector<std::pair<const char*, const char*>>{
           {"sed", "seed"},      // a letter missing rather than another one
           {"modle", "model"},   // two swapped
           {"step", "steps"},    // one missing
           {"ssteps", "steps"},  // one too many
           {"jsen", "json"},     // another one
           {"temp", "temperature"},
           {"colour", ""},
           {"", ""},
           {"x", ""}})
    EXPECT_EQ(nearest(word, names), meant) << word;
}

TEST(ParseNumber, ReadsAllOfItInBaseTen) {
  const auto whole = [](const char* text) { return parse_number<int64_t>(text, "--n", -5, 100); };
  EXPECT_EQ(whole("42"), 42);
  EXPECT_EQ(whole("+42"), 42);
  EXPECT_EQ(whole("010"), 10);
  EXPECT_EQ(whole("-5"), -5);
  for (const auto* text : {"", "1e3", "0x10", "1.0", "4 ", " 4", "4,5", "x"})
    EXPECT_TRUE(begins(message_of<Error>([&] { whole(text); }),
                       "--n: must be a whole number in digits, got '"))
        << text;
  for (const auto* text : {"101", "-6", "18446744073709551617", "99999999999999999999999"})
    EXPECT_EQ(message_of<Error>([&] { whole(text); }),
              std::string("--n: must be from -5 to 100, got ") + text);
  const auto any = [](const char* text) { return parse_number(text, "--p", 0.0, 1.0); };
  EXPECT_EQ(any("0.5"), 0.5);
  EXPECT_EQ(any("5e-1"), 0.5);
  for (const auto* text : {"nan", "x", "", "0.5x"})
    EXPECT_TRUE(begins(message_of<Error>([&] { any(text); }), "--p: must be a number, got '"));
  for (const auto* text : {"inf", "-0.1", "1.1", "1e999"})
    EXPECT_TRUE(begins(message_of<Error>([&] { any(text); }), "--p: must be from 0 to 1, got "));
}

TEST(LineReader, SaysWhenItReads) {
  const TempFolder folder;
  write_text(folder.path() / "lines", "a\nb\n");
  int reads = 0;
  LineReader reader((folder.path() / "lines").string(), [&] { ++reads; });
  std::string line;
  EXPECT_EQ(reads, 0);
  while (reader.next(line)) EXPECT_EQ(reads, 1);
  EXPECT_EQ(reads, 2);  // the end was read, too
}

}  // namespace
}  // namespace bmojo::base
