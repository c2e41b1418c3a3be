#pragma once

#include <string>
#include <string_view>

namespace bmojo::data {

// Valid UTF-8 in Unicode's normal form C, exactly as Python's `tokenizers` makes it: characters
// that are younger than its tables stay as they are. `text` itself where nothing changes, else
// `buffer`.
std::string_view to_nfc(std::string_view text, std::string& buffer);

}  // namespace bmojo::data
