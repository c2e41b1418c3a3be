#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace bmojo::base {

// The whole of a small regular file. Error where it is something else (a pipe would make the
// program wait, a device might never end) or larger than `limit` bytes, RunError where reading
// fails.
std::string read_text(const std::filesystem::path& path, size_t limit = size_t{64} << 20);

// The lines of a regular file, or of standard input, whatever that is, for "-".
class LineReader {
 public:
  static constexpr size_t kMaxLineBytes = size_t{64} << 20;

  // before_reading() is called before each read that may have to wait.
  explicit LineReader(const std::string& path, std::function<void()> before_reading = {});
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The next line without its end, or false behind the last one. Error where the line is too long,
  // RunError where reading fails.
  bool next(std::string& line);
  // "FILE:LINE" of that line, for messages.
  std::string where() const;

 private:
  bool fill();

  std::string subject_;
  int descriptor_ = -1;
  size_t number_ = 0;
  std::vector<char> buffer_;
  std::string_view rest_;  // of the buffer
  std::function<void()> before_reading_;
};

// What a file that begins like this is, where that is a known mix-up, and the remedy: "a Git LFS
// pointer; …". Empty otherwise.
std::string_view mix_up(std::string_view start);

}  // namespace bmojo::base
