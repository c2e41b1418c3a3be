#include "bmojo/base/input.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "bmojo/base/descriptor.h"

namespace bmojo::base {
namespace {

// O_NONBLOCK: without it, opening a pipe would wait for its writer.
int open_regular(const std::filesystem::path& path, std::string_view remedy) {
  const int descriptor = open_to_read(path, O_NONBLOCK);
  require(descriptor >= 0, "{}: cannot be read: {}", shown(path), reason());
  struct stat status{};
  const bool known = ::fstat(descriptor, &status) == 0;
  if (known && S_ISREG(status.st_mode)) return descriptor;
  ::close(descriptor);
  const bool is_folder = known && S_ISDIR(status.st_mode);
  fail("{}: must be a regular file, got {}{}", shown(path),
       is_folder ? "a folder" : "a device or pipe", is_folder ? "" : remedy);
}

int open_standard_input() {
  struct stat status{};
  const bool is_folder = ::fstat(STDIN_FILENO, &status) == 0 && S_ISDIR(status.st_mode);
  require(!is_folder, "-: standard input must be a file or a pipe, got a folder");
  return STDIN_FILENO;
}

// How many bytes came; 0 at the end.
size_t read_some(int descriptor, char* to, size_t count, const std::string& subject) {
  const ssize_t got = retried([&] { return ::read(descriptor, to, count); });
  if (got < 0) throw RunError(fmt::format("{}: reading failed: {}", subject, reason()));
  return static_cast<size_t>(got);
}

bool starts_without_case(std::string_view text, std::string_view start) {
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  return text.size() >= start.size() && std::equal(start.begin(), start.end(), text.begin(),
                                                   [&](char b, char a) { return same(a, b); });
}

}  // namespace

std::string read_text(const std::filesystem::path& path, size_t limit) {
  const Descriptor file(open_regular(path, "; write it to a file first"));
  std::string text;
  std::vector<char> part(size_t{1} << 16);
  while (const size_t count = read_some(file, part.data(), part.size(), shown(path))) {
    require(count <= limit - text.size(), "{}: must be at most {} bytes, got more", shown(path),
            limit);
    text.append(part.data(), count);
  }
  return text;
}

LineReader::LineReader(const std::string& path, std::function<void()> before_reading)
    : subject_(shown(path)),
      descriptor_(path == "-" ? open_standard_input()
                              : open_regular(path, "; give - and pipe it in")),
      buffer_(size_t{1} << 16),
      before_reading_(std::move(before_reading)) {}

LineReader::~LineReader() {
  if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
}

bool LineReader::fill() {
  if (before_reading_) before_reading_();
  rest_ = {buffer_.data(), read_some(descriptor_, buffer_.data(), buffer_.size(), subject_)};
  return !rest_.empty();
}

bool LineReader::next(std::string& line) {
  line.clear();
  ++number_;
  bool found = false;
  while (!rest_.empty() || fill()) {
    found = true;
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    require(end <= kMaxLineBytes - line.size(), "{}: line must be at most {} bytes, got more",
            where(), kMaxLineBytes);
    line += rest_.substr(0, end);
    const bool ended = end < rest_.size();
    rest_.remove_prefix(end + (ended ? 1 : 0));
    if (ended) break;
  }
  return found;
}

std::string LineReader::where() const { return fmt::format("{}:{}", subject_, number_); }

std::string_view mix_up(std::string_view start) {
  if (start.starts_with("version https://git-lfs"))
    return "a Git LFS pointer; fetch the file itself (git lfs pull)";
  start.remove_prefix(std::min(start.find_first_not_of(" \t\r\n"), start.size()));
  if (starts_without_case(start, "<!doctype") || starts_without_case(start, "<html"))
    return "a web page; download the file itself";
  return {};
}

}  // namespace bmojo::base
