#include "bmojo/base/progress.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <string>

namespace bmojo::base {
namespace {

// stderr is another file for as long as this lives.
class OtherStderr {
 public:
  explicit OtherStderr(int descriptor) : own_(::dup(STDERR_FILENO)) {
    ::dup2(descriptor, STDERR_FILENO);
  }
  ~OtherStderr() {
    ::dup2(own_, STDERR_FILENO);
    ::close(own_);
    std::clearerr(stderr);
  }

 private:
  int own_;
};

// What a status line writes to a terminal of this kind.
std::string written_to_terminal(const char* kind) {
  int primary = -1, secondary = -1;
  if (::openpty(&primary, &secondary, nullptr, nullptr, nullptr) != 0) return "no terminal";
  ::setenv("TERM", kind, /*overwrite=*/1);
  {
    const OtherStderr terminal(secondary);
    StatusLine line(/*quiet=*/false);
    line.show("half done");
  }
  ::close(secondary);  // then reading ends behind what was written
  std::string text;
  std::array<char, 256> part{};
  for (ssize_t size = 0; (size = ::read(primary, part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<size_t>(size));
  ::close(primary);
  return text;
}

TEST(StatusLine, MovesOnATerminalThatCan) {
  EXPECT_EQ(written_to_terminal("xterm"), "\rhalf done\x1b[K\r\x1b[K");
  EXPECT_EQ(written_to_terminal("dumb"), "half done\r\n");  // the terminal adds \r
}

TEST(StatusLine, MayBeReadByNobody) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ::close(ends[0]);
  std::signal(SIGPIPE, SIG_IGN);
  {
    const OtherStderr closed(ends[1]);
    StatusLine line(/*quiet=*/false);
    EXPECT_NO_THROW(line.show("half done"));
    EXPECT_NO_THROW(line.say("done"));
  }
  ::close(ends[1]);
}

}  // namespace
}  // namespace bmojo::base
