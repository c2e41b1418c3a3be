#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace bmojo::test {

// A folder of its own, removed with all it holds.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "bmojo-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

  std::filesystem::path write(std::string_view name, std::string_view bytes) const {
    // ext4 flushes a file that is cut to nothing and written again: milliseconds each time.
    std::filesystem::remove(path_ / name);
    std::ofstream out(path_ / name, std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path_ / name;
  }
  size_t num_entries() const {
    using Iterator = std::filesystem::directory_iterator;
    return static_cast<size_t>(std::distance(Iterator(path_), Iterator()));
  }

 private:
  std::filesystem::path path_;
};

inline testing::AssertionResult contains(std::string_view text, std::string_view part) {
  if (text.find(part) != text.npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "expected \"" << part << "\" within \"" << text << '"';
}

inline testing::AssertionResult begins(std::string_view text, std::string_view part) {
  if (text.starts_with(part)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "expected \"" << part << "\" to begin \"" << text << '"';
}

// What `call` throws as an E, or nothing where it does not; a message must be one printable line.
template <typename E, typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const E& error) {
    const std::string message = error.what();
    for (const char byte : message) {
      EXPECT_GE(static_cast<unsigned char>(byte), 0x20) << "control character in: " << message;
    }
    EXPECT_LT(message.size(), 1000u);
    return message;
  }
  return "";
}

}  // namespace bmojo::test
