#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace bmojo {

// "12.3 M", "5.61 G": three digits and the SI letter; what follows is the unit ("B", "B/s", …).
std::string si(double value, std::string_view unit);
// "1,402,345,472"
std::string grouped(int64_t value);

// "init  42 %  310 MB/s  0:12 left", cut to `width` columns.
std::string progress_line(std::string_view label, std::string_view unit, int64_t done,
                          int64_t total, double seconds, size_t width = 79);

// How far a long job has come, on stderr: a moving line on a terminal, elsewhere a plain line every
// five seconds. Work that ends within a second shows nothing, and neither does `quiet`.
class Progress {
 public:
  Progress(std::string label, std::string unit, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(int64_t done, int64_t total);

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_, unit_;
  bool quiet_, terminal_;
  bool line_shown_ = false;
  Clock::time_point start_, next_;
};

}  // namespace bmojo
