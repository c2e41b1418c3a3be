#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// What methods of Python's str do to valid UTF-8, for texts that must come out as programs in
// Python have them.

namespace bmojo::data {

// strip() and rstrip(): without the white space around it, or behind it.
std::string_view strip(std::string_view text);
std::string_view strip_end(std::string_view text);
// len(re.split(r"\s+", text))
int64_t count_words(std::string_view text);
// text.split(), and " ".join() of it
std::vector<std::string> split(std::string_view text);
std::string single_spaced(std::string_view text);
// len(text)
int64_t count_characters(std::string_view text);
// text.replace(from, to)
std::string replaced(std::string_view text, std::string_view from, std::string_view to);
// capitalize() and lower(), but that a character never becomes several, as ß and İ do in Python,
// and that Σ becomes σ at the end of a word, too.
std::string capitalized(std::string_view text);
std::string lowered(std::string_view text);

}  // namespace bmojo::data
