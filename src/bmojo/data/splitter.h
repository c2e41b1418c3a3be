#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace bmojo::data {

// The patterns that cut a text into the words whose bytes are merged. L is a letter, N a number, S
// white space, by Unicode 16.0; the first alternative that fits counts, each is greedy.
//   kGpt2    's|'t|'re|'ve|'m|'ll|'d| ?L+| ?N+| ?[^SLN]+|S+(?!\S)|S+
//   kDigits  each N alone; what lies between two of them by kGpt2, as if it were the whole text
//   kLlama3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\nLN]?L+|N{1,3}|
//   ?[^SLN]+[\r\n]*|S*[\r\n]+|S+(?!\S)|S+
enum class SplitPattern { kGpt2, kDigits, kLlama3 };

inline constexpr std::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Written out by hand: time is linear in the text, which no regular expression library with
// lookahead promises.
class Splitter {
 public:
  explicit Splitter(SplitPattern pattern);

  SplitPattern pattern() const { return pattern_; }
  // The end of the word that begins at `begin` < `end`, in valid UTF-8.
  const char* word_end(const char* begin, const char* end) const;

 private:
  uint8_t class_at(const char* p) const;
  const char* skip(uint8_t kind, const char* p, const char* end) const;
  const char* spaces_end(const char* begin, const char* end) const;
  const char* gpt2_end(const char* begin, const char* end) const;
  const char* llama3_end(const char* begin, const char* end) const;

  SplitPattern pattern_;
  const uint8_t* flags_;
};

}  // namespace bmojo::data
