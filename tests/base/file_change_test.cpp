// In which order files are written, flushed and renamed: what a power cut may leave depends on it.
#include "bmojo/base/file_change.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <regex>
#include <string>
#include <vector>

#include "bmojo/base/file.h"
#include "tests/temp_folder.h"

namespace bmojo::base {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;
using Changes = std::vector<std::string>;

// Named before the first change, which is when the variable is read.
const TempFolder log_folder;
const int log_is_named = ::setenv("BMOJO_FILE_LOG", (log_folder / "log").c_str(), 1);

// What a call does to the file system: paths below `folder`, temporary names without their numbers.
template <typename Call>
Changes changes_of(const fs::path& folder, Call call) {
  std::ifstream log(log_folder / "log");
  log.seekg(0, std::ios::end);
  const auto before = log.tellg() < 0 ? std::streamoff{0} : std::streamoff(log.tellg());
  call();
  log = std::ifstream(log_folder / "log");
  log.seekg(before);
  Changes changes;
  for (std::string line; std::getline(log, line);) {
    line = std::regex_replace(line, std::regex(folder.string() + "(/?)"), "/");
    line = std::regex_replace(line, std::regex("tmp-[0-9]+-[0-9]+"), "tmp");
    line = std::regex_replace(line, std::regex("\t+$"), "");
    changes.push_back(std::regex_replace(line, std::regex("\t"), " "));
  }
  return changes;
}

TEST(FileChange, AFileIsFlushedThenRenamedThenItsFolderFlushed) {
  const TempFolder folder;
  const auto changes = changes_of(folder.path(), [&] {
    AtomicFile file(folder / "x");
    file.write("one");
    file.write("two");
    file.overwrite(1, "n");
    file.commit();
  });
  EXPECT_EQ(changes, (Changes{"create /x.tmp", "write /x.tmp", "write /x.tmp", "write /x.tmp",
                              "flush /x.tmp", "rename /x.tmp /x", "flush /"}));
  EXPECT_EQ(
      changes_of(folder.path(), [&] { write_text(folder / "y", "text"); }),
      (Changes{"create /y.tmp", "write /y.tmp", "flush /y.tmp", "rename /y.tmp /y", "flush /"}));
}

TEST(FileChange, AFolderIsFlushedFromTheInsideThenRenamed) {
  const TempFolder temporary;
  const auto folder = fs::canonical(temporary.path());
  const auto fill = [](const fs::path& inside) {
    fs::create_directory(inside / "inner");
    std::ofstream(inside / "inner/note") << "note";
  };
  EXPECT_EQ(changes_of(folder, [&] { write_folder(folder / "out", fill); }),
            (Changes{"create /out.tmp", "flush /out.tmp/inner/note", "flush /out.tmp/inner",
                     "flush /out.tmp", "rename /out.tmp /out", "flush /"}));
  EXPECT_EQ(changes_of(folder, [&] { move_folder(folder / "out", folder / "moved"); }),
            (Changes{"rename /out /moved", "flush /"}));
}

TEST(FileChange, ALinkIsRenamedThenItsFolderFlushed) {
  const TempFolder folder;
  EXPECT_EQ(changes_of(folder.path(), [&] { replace_link(folder / "latest", "step"); }),
            (Changes{"create /latest.tmp", "rename /latest.tmp /latest", "flush /"}));
}

TEST(FileChange, EveryFolderMadeIsFlushedBeforeTheNext) {
  const TempFolder folder;
  EXPECT_EQ(changes_of(folder.path(), [&] { create_folders(folder / "a/b", "out"); }),
            (Changes{"create /a", "flush /", "create /a/b", "flush /a"}));
}

TEST(FileChange, NothingChangesUnseen) {
  const TempFolder folder;
  EXPECT_EQ(changes_of(folder.path(), [&] { append_text(folder / "x", "line"); }),
            (Changes{"create /x", "write /x"}));
  EXPECT_EQ(changes_of(folder.path(), [&] { const LockedFile lock(folder / "lock", "out"); }),
            (Changes{"create /lock"}));
  EXPECT_EQ(changes_of(folder.path(), [&] { create_folder(folder / "y"); }),
            (Changes{"create /y"}));
  EXPECT_EQ(changes_of(folder.path(), [&] { sync_path(folder / "x"); }), (Changes{"flush /x"}));
  EXPECT_EQ(changes_of(folder.path(), [&] { remove_path(folder / "x"); }), (Changes{"remove /x"}));
}

}  // namespace
}  // namespace bmojo::base
