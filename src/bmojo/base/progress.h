#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace bmojo::base {

// "12.3 M", "5.61 G": three digits and the SI letter; what follows is the unit ("B", "B/s", …).
std::string si(double value, std::string_view unit);
// "1,402,345,472"
std::string grouped(int64_t value);

// "init  42 %  310 MB/s  0:12 left"
std::string progress_line(std::string_view label, std::string_view unit, int64_t done,
                          int64_t total, double seconds);

// "1:05", "2:03:20"; "long" beyond 100 hours.
std::string clock_text(double seconds);

// Whether stderr is a terminal that can write a line anew; with TERM=dumb it says that it cannot.
bool is_live_terminal();
// Writes to stderr as far as that goes. Never throws: nobody may be there to read it, and work that
// only reports there must not end for that.
void print_stderr(std::string_view text);

// One line on stderr that is written anew: it moves on a live terminal, cut at its edge; elsewhere
// it is a plain line every five seconds, whole. `quiet` shows nothing.
class StatusLine {
 public:
  explicit StatusLine(bool quiet);
  ~StatusLine() { clear(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  bool is_due() const;  // time for the next one
  void show(std::string_view line);
  void say(std::string_view line);  // a line that stays
  void clear();
  void wait(double seconds);  // nothing is due before

 private:
  using Clock = std::chrono::steady_clock;
  bool quiet_, terminal_, shown_ = false;
  Clock::time_point next_;
};

// How far a long job has come. Work that ends within a second shows nothing.
class Progress {
 public:
  Progress(std::string label, std::string unit, bool quiet);

  void update(int64_t done, int64_t total);

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_, unit_;
  StatusLine line_;
  Clock::time_point start_;
};

}  // namespace bmojo::base
