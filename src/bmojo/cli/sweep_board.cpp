#include "bmojo/cli/sweep_board.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "bmojo/base/printable.h"
#include "bmojo/base/progress.h"

namespace bmojo::cli {
namespace {

winsize terminal_size() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) size.ws_col = 80;
  if (size.ws_row < 3) size.ws_row = 24;
  return size;
}

}  // namespace

Board::Board(bool quiet)
    : quiet_(quiet), terminal_(base::is_live_terminal()), plain_(quiet || terminal_) {
  plain_.wait(5);
}

void Board::show(const std::vector<std::string>& lines) {
  if (!terminal_) return plain_.show(lines.front());
  if (quiet_) return;
  clear();
  const auto size = terminal_size();
  for (const auto& line : lines) {
    if (height_ + 2 > size.ws_row) break;  // what scrolls away could not be written anew
    // One column stays free: a terminal wraps when its last one is written.
    fmt::print(stderr, "{}\n", base::printable(line, size.ws_col - 2u));
    ++height_;
  }
  std::fflush(stderr);
}

void Board::say(const std::string& line) {
  clear();
  if (!quiet_) fmt::print(stderr, "{}\n", base::printable(line));
}

void Board::clear() {
  if (height_ > 0) fmt::print(stderr, "\r\x1b[{}A\x1b[J", height_);
  height_ = 0;
}

}  // namespace bmojo::cli
