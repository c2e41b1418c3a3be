#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "bmojo/base/progress.h"

namespace bmojo::cli {

// A table on stderr that is written anew: it moves on a terminal; elsewhere its first line alone is
// a plain line every five seconds. `quiet` shows nothing.
class Board {
 public:
  explicit Board(bool quiet);
  ~Board() { clear(); }
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  void show(const std::vector<std::string>& lines);
  void say(const std::string& line);  // a line that stays, above the table

 private:
  void clear();

  bool quiet_, terminal_;
  size_t height_ = 0;
  base::StatusLine plain_;
};

}  // namespace bmojo::cli
