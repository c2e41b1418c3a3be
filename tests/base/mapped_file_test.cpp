// Files that are cut short while they are mapped.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "bmojo/base/file.h"
#include "tests/temp_folder.h"

namespace bmojo::base {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;

constexpr size_t kSize = 100'000;

char touch(const void* bytes) { return *static_cast<const volatile char*>(bytes); }

// The whole of what is said. A death test runs again from its start, with a folder of its own.
constexpr const char* kLine =
    "^bmojo: /[^\n]*/x: reading failed: the file was cut short while in use, or its disk has "
    "failed\n$";

class MappedFileDeathTest : public testing::Test {
 protected:
  MappedFileDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  TempFolder folder_;
  fs::path path_ = folder_.write("x", std::string(kSize, 'x'));
};

TEST_F(MappedFileDeathTest, OneThatIsCutShortEndsTheProgram) {
  const auto use = [&] {
    watch_mapped_files();
    const MappedFile before(folder_.write("before", "x")), file(path_),
        after(folder_.write("after", std::string(kSize, 'y')));
    touch(&file.bytes().back());
    fs::resize_file(path_, 10);
    touch(&after.bytes().back());
    touch(&file.bytes().front());
    touch(&file.bytes().back());
  };
  EXPECT_EXIT(use(), testing::ExitedWithCode(1), kLine);
}

TEST_F(MappedFileDeathTest, SoDoesOneThatIsCutShortWhileItIsCopied) {
  const auto copy = [&] {
    watch_mapped_files();
    const MappedFile file(path_);
    fs::resize_file(path_, 10'000);
    AtomicFile(folder_ / "copy").write(file.bytes());
  };
  EXPECT_EXIT(copy(), testing::ExitedWithCode(1), kLine);
}

TEST_F(MappedFileDeathTest, ItIsSaidOnceHoweverManyThreadsRead) {
  const auto use = [&] {
    watch_mapped_files();
    const MappedFile file(path_);
    fs::resize_file(path_, 0);
    std::vector<std::thread> threads;
    for (int i = 0; i < 16; ++i) threads.emplace_back([&, i] { touch(&file.bytes()[5000 * i]); });
    for (auto& thread : threads) thread.join();
  };
  EXPECT_EXIT(use(), testing::ExitedWithCode(1), kLine);
}

TEST_F(MappedFileDeathTest, FilesThatAreDoneWithMakeRoom) {
  const auto use = [&] {
    watch_mapped_files();
    for (int i = 0; i < 70'000; ++i) const MappedFile file(path_);
    const MappedFile file(path_);
    fs::resize_file(path_, 0);
    touch(file.bytes().data());
  };
  EXPECT_EXIT(use(), testing::ExitedWithCode(1), kLine);
}

TEST_F(MappedFileDeathTest, AnyOtherFaultIsASignal) {
  const auto touch_another = [&] {
    watch_mapped_files();
    const MappedFile file(path_);
    const int descriptor = ::open(folder_.write("y", std::string(kSize, 'y')).c_str(), O_RDONLY);
    const void* bytes = ::mmap(nullptr, kSize, PROT_READ, MAP_PRIVATE, descriptor, 0);
    fs::resize_file(folder_ / "y", 0);
    touch(bytes);
  };
  EXPECT_EXIT(touch_another(), testing::KilledBySignal(SIGBUS), "^$");
  const auto be_sent_one = [&] {
    watch_mapped_files();
    const MappedFile file(path_);
    ::kill(::getpid(), SIGBUS);
  };
  EXPECT_EXIT(be_sent_one(), testing::KilledBySignal(SIGBUS), "^$");
}

}  // namespace
}  // namespace bmojo::base
