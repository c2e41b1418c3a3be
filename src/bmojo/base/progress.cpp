#include "bmojo/base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace bmojo::base {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kMoving{100}, kPlain{5000};
constexpr double kQuietStart = 1, kPlainStart = 5;  // seconds

// One column stays free: a terminal wraps when its last one is written.
size_t terminal_width() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return (known ? size.ws_col : 80u) - 1u;
}

}  // namespace

std::string clock_text(double seconds) {
  if (!(seconds < 360000)) return "long";
  const auto whole = std::lround(seconds);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string si(double value, std::string_view unit) {
  constexpr std::array<std::string_view, 6> kLetters = {"", "k", "M", "G", "T", "P"};
  size_t letter = 0;
  while (value >= 999.5 && letter + 1 < kLetters.size()) {
    value /= 1000;
    ++letter;
  }
  const int decimals = letter == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}{}", value, decimals, kLetters[letter], unit);
}

std::string grouped(int64_t value) {
  std::string digits = fmt::format("{}", value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, 1, ',');
  }
  return digits;
}

std::string progress_line(std::string_view label, std::string_view unit, int64_t done,
                          int64_t total, double seconds) {
  const double part = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1;
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  std::string line = fmt::format("{}  {:3.0f} %  {}", label, std::floor(100 * part),
                                 si(rate, fmt::format("{}/s", unit)));
  if (rate > 0)
    line += fmt::format("  {} left", clock_text(static_cast<double>(total - done) / rate));
  return line;
}

bool is_live_terminal() {
  const char* kind = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && (kind == nullptr || std::string_view(kind) != "dumb");
}

void print_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

StatusLine::StatusLine(bool quiet)
    : quiet_(quiet), terminal_(is_live_terminal()), next_(Clock::now()) {}

bool StatusLine::is_due() const { return !quiet_ && Clock::now() >= next_; }

void StatusLine::show(std::string_view line) {
  if (!is_due()) return;
  next_ = Clock::now() + (terminal_ ? kMoving : kPlain);
  const auto cut = terminal_ ? line.substr(0, terminal_width()) : line;
  print_stderr(fmt::format("{}{}{}", terminal_ ? "\r" : "", cut, terminal_ ? "\x1b[K" : "\n"));
  shown_ = terminal_;
}

void StatusLine::say(std::string_view line) {
  clear();
  if (!quiet_) print_stderr(fmt::format("{}\n", line));
}

void StatusLine::clear() {
  if (shown_) print_stderr("\r\x1b[K");
  shown_ = false;
}

void StatusLine::wait(double seconds) {
  next_ = Clock::now() +
          std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

Progress::Progress(std::string label, std::string unit, bool quiet)
    : label_(std::move(label)), unit_(std::move(unit)), line_(quiet), start_(Clock::now()) {
  line_.wait(is_live_terminal() ? kQuietStart : kPlainStart);
}

void Progress::update(int64_t done, int64_t total) {
  if (!line_.is_due()) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  line_.show(progress_line(label_, unit_, done, total, seconds));
}

}  // namespace bmojo::base
