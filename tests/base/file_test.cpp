#include "bmojo/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "bmojo/base/error.h"
#include "bmojo/base/input.h"
#include "tests/temp_folder.h"

namespace bmojo::base {
namespace {

namespace fs = std::filesystem;
using test::begins;
using test::contains;
using test::message_of;
using test::TempFolder;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(MappedFile, ReadsAndNeverWritesBack) {
  const TempFolder folder;
  const auto path = folder.write("x", "hello");
  {
    const MappedFile file(path);
    EXPECT_EQ(text_of(file.bytes()), "hello");
    EXPECT_EQ(file.path(), path);
    file.bytes()[0] = std::byte{'j'};
    EXPECT_EQ(text_of(file.bytes()), "jello");
  }
  EXPECT_EQ(read_text(path), "hello");
}

TEST(MappedFile, EmptyFileIsAnEmptySpan) {
  const TempFolder folder;
  EXPECT_TRUE(MappedFile(folder.write("x", "")).bytes().empty());
}

TEST(MappedFile, LargerThanMemoryMaps) {
  const TempFolder folder;
  const auto path = folder.write("x", "");
  std::error_code error;
  fs::resize_file(path, size_t{1} << 40, error);
  if (error) GTEST_SKIP() << "the file system has no sparse files of 1 TiB";
  EXPECT_EQ(MappedFile(path).bytes().size(), size_t{1} << 40);
}

TEST(MappedFile, RefusesWhatIsNotAFile) {
  const TempFolder folder;
  const auto missing = message_of<Error>([&] { MappedFile file(folder / "no"); });
  EXPECT_TRUE(begins(missing, (folder / "no").string() + ": cannot be read: No "));
  EXPECT_TRUE(contains(message_of<Error>([&] { MappedFile file(folder.path()); }),
                       "must be a regular file, got a folder"));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(contains(message_of<Error>([&] { MappedFile file(folder / "pipe"); }),
                       "got a device or pipe"));
  EXPECT_TRUE(contains(message_of<Error>([&] { MappedFile file(folder / "two\nlines"); }),
                       "two\\x0alines"));
}

TEST(AtomicFile, AppearsOnlyOnCommit) {
  const TempFolder folder;
  const auto path = folder / "x";
  AtomicFile file(path);
  file.write("hello ");
  file.write("world");
  EXPECT_FALSE(fs::exists(path));
  file.commit();
  EXPECT_EQ(read_text(path), "hello world");
  EXPECT_EQ(folder.num_entries(), 1u);
}

TEST(AtomicFile, OldFileStaysUntilCommit) {
  const TempFolder folder;
  const auto path = folder.write("x", "old");
  {
    AtomicFile file(path);
    file.write("new and longer");
    EXPECT_EQ(read_text(path), "old");
    file.commit();
    EXPECT_EQ(read_text(path), "new and longer");
  }
  EXPECT_EQ(read_text(path), "new and longer");
}

TEST(AtomicFile, LeavesNothingWithoutCommit) {
  const TempFolder folder;
  folder.write("x", "old");
  {
    AtomicFile file(folder / "x"), fresh(folder / "y");
    file.write("new");
    fresh.write("new");
    EXPECT_EQ(folder.num_entries(), 3u);  // x and two temporary files
  }
  EXPECT_EQ(folder.num_entries(), 1u);
  EXPECT_EQ(read_text(folder / "x"), "old");
}

TEST(AtomicFile, OverwriteKeepsTheEnd) {
  const TempFolder folder;
  AtomicFile file(folder / "x");
  file.write("0123456789");
  file.overwrite(2, "ab");
  file.write("!");
  file.overwrite(10, "?");
  EXPECT_TRUE(contains(message_of<Error>([&] { file.overwrite(10, "ab"); }),
                       "overwrite must stay within the 11 bytes written, got [10, 12)"));
  EXPECT_TRUE(contains(message_of<Error>([&] { file.overwrite(12, ""); }), "within the 11 bytes"));
  file.commit();
  EXPECT_EQ(read_text(folder / "x"), "01ab456789?");
}

TEST(AtomicFile, TwoWritersOfOneNameDoNotMix) {
  const TempFolder folder;
  AtomicFile a(folder / "x"), b(folder / "x");
  a.write("aaaa");
  b.write("bb");
  b.commit();
  EXPECT_EQ(read_text(folder / "x"), "bb");
  a.commit();
  EXPECT_EQ(read_text(folder / "x"), "aaaa");
  EXPECT_EQ(folder.num_entries(), 1u);
}

TEST(AtomicFile, RefusesImpossiblePlaces) {
  const TempFolder folder;
  EXPECT_TRUE(contains(message_of<Error>([&] { AtomicFile file(folder / "no/x"); }),
                       "must be in a folder that can be written, got No such file"));
  EXPECT_TRUE(contains(message_of<Error>([&] { AtomicFile file(folder.path()); }),
                       "must be a regular file, got a folder"));
  EXPECT_TRUE(contains(message_of<Error>([&] { AtomicFile file("/dev/null"); }),
                       "must be a regular file, got a device or pipe"));
}

TEST(AtomicFile, CommitIsOnceAndLast) {
  const TempFolder folder;
  AtomicFile file(folder / "x");
  file.commit();
  EXPECT_TRUE(contains(message_of<Error>([&] { file.commit(); }), "committed once"));
  EXPECT_TRUE(contains(message_of<Error>([&] { file.write("x"); }), "written before commit"));
  EXPECT_TRUE(contains(message_of<Error>([&] { file.overwrite(0, ""); }), "before commit"));
}

TEST(AtomicFile, FullDiskIsARunErrorAndLeavesNothing) {
  const TempFolder folder;
  folder.write("x", "old");
  // A limit on the size of files stands in for a full disk: a short write, then a refusal.
  struct rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message;
  {
    AtomicFile file(folder / "x");
    message = message_of<RunError>([&] { file.write(std::string(5000, 'x')); });
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_TRUE(contains(message, "x: writing failed: File too large"));
  EXPECT_EQ(read_text(folder / "x"), "old");
  EXPECT_EQ(folder.num_entries(), 1u);
}

void write_greeting(const fs::path& folder) {
  AtomicFile file(folder / "greeting");
  file.write("hello");
  file.commit();
  fs::create_directory(folder / "inner");
  std::ofstream(folder / "inner" / "note") << "note";
}

TEST(WriteFolder, FillsANewOrEmptyFolder) {
  const TempFolder folder;
  fs::create_directory(folder / "empty");
  fs::create_directory(folder / "linked");
  fs::create_directory_symlink(folder / "linked", folder / "link");
  for (const char* name : {"new", "slash/", "empty", "link"}) {
    write_folder(folder / name, [&](const fs::path& temporary) {
      EXPECT_EQ(temporary.parent_path(), fs::canonical(folder.path()));
      EXPECT_FALSE(fs::exists(folder / name / "greeting"));
      write_greeting(temporary);
    });
    EXPECT_EQ(read_text(folder / name / "greeting"), "hello") << name;
    EXPECT_EQ(read_text(folder / name / "inner" / "note"), "note") << name;
  }
  EXPECT_EQ(folder.num_entries(), 5u);
}

TEST(WriteFolder, RefusesBeforeAnythingIsWritten) {
  const TempFolder folder;
  folder.write("file", "x");
  fs::create_directory(folder / "full");
  folder.write("full/x", "x");
  fs::create_symlink(folder / "nowhere", folder / "dangling");
  const auto refusal = [&](const fs::path& path) {
    return message_of<Error>(
        [&] { write_folder(path, [](const fs::path&) { FAIL() << "must not be called"; }); });
  };
  EXPECT_EQ(refusal(folder / "full"), "out: folder must be new or empty, got " +
                                          (folder / "full").string() + "; choose another --out");
  EXPECT_TRUE(contains(refusal(folder / "full/"), "must be new or empty"));
  EXPECT_TRUE(contains(refusal(folder / "file"), "out: must be a folder, got the file "));
  EXPECT_TRUE(begins(refusal(folder / "dangling"), "out: "));
  EXPECT_TRUE(contains(refusal(folder / "no" / "out"), "out: parent of the folder must exist"));
  EXPECT_TRUE(begins(refusal(folder / "file" / "out"), "out: "));
  EXPECT_TRUE(contains(refusal(""), "out: folder must have a name"));
  EXPECT_EQ(folder.num_entries(), 3u);
  EXPECT_EQ(read_text(folder / "full/x"), "x");
}

TEST(WriteFolder, LeavesNothingWhenFillThrows) {
  const TempFolder folder;
  const auto message = message_of<Error>([&] {
    write_folder(folder / "out", [](const fs::path& temporary) {
      write_greeting(temporary);
      fail("fill: must work, got {}", "stuck");
    });
  });
  EXPECT_EQ(message, "fill: must work, got stuck");
  EXPECT_EQ(folder.num_entries(), 0u);
}

TEST(WriteFolder, DoesNotReplaceAFolderFilledMeanwhile) {
  const TempFolder folder;
  const auto message = message_of<Error>([&] {
    write_folder(folder / "out", [&](const fs::path&) {
      fs::create_directory(folder / "out");
      folder.write("out/theirs", "x");
    });
  });
  EXPECT_TRUE(contains(message, "filled meanwhile; choose another --out"));
  EXPECT_EQ(read_text(folder / "out/theirs"), "x");
  EXPECT_EQ(folder.num_entries(), 1u);
}

// The id of a process that has ended.
pid_t dead_process() {
  const pid_t process = ::fork();
  if (process == 0) ::_exit(0);
  ::waitpid(process, nullptr, 0);
  return process;
}

TEST(TemporaryNames, ThoseOfDeadProcessesAreRemoved) {
  const auto dead = std::to_string(dead_process()), own = std::to_string(::getpid());
  const std::vector<std::function<void(const fs::path&)>> ways = {
      [](const fs::path& path) { write_text(path, "new"); },
      [](const fs::path& path) { replace_link(path, "kept"); },
      [](const fs::path& path) { write_folder(path, write_greeting); }};
  for (const auto& make : ways) {
    const TempFolder folder;
    fs::create_directory(folder / "kept");
    folder.write("kept/note", "note");
    // A file, a folder, a link to a folder; and one of an earlier process with this one's id.
    folder.write("x.tmp-" + dead + "-0", "left");
    fs::create_directory(folder / ("x.tmp-" + dead + "-1"));
    folder.write("x.tmp-" + dead + "-1/left", "left");
    fs::create_directory_symlink("kept", folder / ("x.tmp-" + dead + "-2"));
    folder.write("x.tmp-" + own + "-0", "left");
    make(folder / "x");
    EXPECT_EQ(folder.num_entries(), 2u);
    EXPECT_EQ(read_text(folder / "kept/note"), "note");
  }
}

TEST(TemporaryNames, ThoseOfOthersStay) {
  const TempFolder folder;
  const auto dead = std::to_string(dead_process()), parent = std::to_string(::getppid());
  for (const auto& name :
       {"x.tmp-" + parent + "-0", "y.tmp-" + dead + "-0", "x.tmp-" + dead, "x.tmp-" + dead + "-",
        "x.tmp-" + dead + "-0-0", "x.tmp-" + dead + "-a", std::string("x.tmp-mine"),
        std::string("x.tmp-0-0"), std::string("x.tmp--1-0"), "ax.tmp-" + dead + "-0"})
    folder.write(name, "theirs");
  const AtomicFile own(folder / "x");
  write_text(folder / "x", "new");
  EXPECT_EQ(folder.num_entries(), 12u);  // those, our own and x
}

TEST(PlainName, StaysInItsFolder) {
  for (const std::string_view name : {"a", "a.json", "..a", "a..", ".hidden", "a b"})
    EXPECT_TRUE(is_plain_name(name)) << name;
  for (const std::string_view name : {"", ".", "..", "/", "/a", "a/", "../a", "a/b", "./a"})
    EXPECT_FALSE(is_plain_name(name)) << name;
  EXPECT_FALSE(is_plain_name(std::string_view("a\0b", 3)));
}

TEST(AbsolutePath, KeepsWhatALinkMeans) {
  const auto here = fs::current_path();
  EXPECT_EQ(absolute_path("./a//b/."), here / "a/b");
  EXPECT_EQ(absolute_path("/a/b/"), "/a/b");
  EXPECT_EQ(absolute_path("/"), "/");
  EXPECT_EQ(absolute_path(""), "");
  const TempFolder folder;
  fs::create_directories(folder / "other/deep");
  fs::create_directory_symlink("other/deep", folder / "link");
  folder.write("other/x", "behind the link");
  folder.write("x", "beside it");
  EXPECT_EQ(read_text(absolute_path(folder / "link/../x")), "behind the link");
}

TEST(CreateFolders, MakesWhatIsMissing) {
  const TempFolder folder;
  for (const char* name : {"a/b/c/", "a/b/d", "a", "link/e/"}) {
    if (name == std::string("link/e/")) fs::create_directory_symlink("a", folder / "link");
    create_folders(folder / name, "out");
    EXPECT_TRUE(fs::is_directory(folder / name)) << name;
  }
  EXPECT_TRUE(fs::is_directory(folder / "a/e"));
  folder.write("file", "x");
  fs::create_symlink("nowhere", folder / "dangling");
  for (const std::string name : {"file", "dangling"})
    for (const std::string below : {"", "/", "/x/y"})
      EXPECT_EQ(
          message_of<Error>([&] { create_folders(folder / (name + below), "out"); }),
          "out: folder must be creatable, got " + (folder / name).string() + " (Not a directory)");
  EXPECT_EQ(folder.num_entries(), 4u);
}

// The flags that a file is open with in this process, as /proc has them; none where it is not.
std::string open_flags(const fs::path& path) {
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code closed;
    if (fs::read_symlink(entry.path(), closed) != path) continue;
    std::ifstream info("/proc/self/fdinfo/" + entry.path().filename().string());
    for (std::string word; info >> word;)
      if (word == "flags:" && info >> word) return word;
  }
  return "";
}

TEST(LockedFile, IsHeldByOneAtATime) {
  const TempFolder folder;
  const auto path = fs::canonical(folder.path()) / "lock";
  const auto refusal = [&] { return message_of<Error>([&] { LockedFile other(path, "--out"); }); };
  {
    const LockedFile lock(path, "--out");
    EXPECT_EQ(refusal(),
              "--out: must not be in use by another process, got " + path.string() + " locked");
    // NFS gives an exclusive lock to those who may write.
    EXPECT_EQ(std::stoi(open_flags(path), nullptr, 8) & O_ACCMODE, O_RDWR);
  }
  EXPECT_EQ(open_flags(path), "");
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(folder.num_entries(), 1u);
}

TEST(LockedFile, SaysWhyItCannotBeMade) {
  const TempFolder folder;
  EXPECT_EQ(message_of<Error>([&] { LockedFile lock(folder / "no/lock", "--out"); }),
            (folder / "no/lock").string() +
                ": must be in a folder that can be written, got No such file or directory");
  EXPECT_TRUE(contains(message_of<Error>([&] { LockedFile lock(folder.path(), "--out"); }),
                       "got Is a directory"));
}

TEST(ReadText, ReadsUpToTheLimit) {
  const TempFolder folder;
  const std::string text(10'000, 'x');
  const auto path = folder.write("x", text);
  EXPECT_EQ(read_text(path), text);
  EXPECT_EQ(read_text(path, 10'000), text);
  EXPECT_EQ(read_text(path, SIZE_MAX), text);
  EXPECT_EQ(read_text(folder.write("empty", "")), "");
  EXPECT_EQ(message_of<Error>([&] { read_text(path, 9'999); }),
            path.string() + ": must be at most 9999 bytes, got more");
  EXPECT_FALSE(read_text("/proc/self/status").empty());  // its size says 0
}

TEST(ReadText, RefusesWhatIsNotAFile) {
  const TempFolder folder;
  EXPECT_TRUE(contains(message_of<Error>([&] { read_text(folder / "no"); }),
                       "cannot be read: No such file"));
  EXPECT_TRUE(contains(message_of<Error>([&] { read_text(folder.path()); }), "got a folder"));
}

}  // namespace
}  // namespace bmojo::base
