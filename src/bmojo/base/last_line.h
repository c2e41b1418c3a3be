#pragma once

#include <string_view>

namespace bmojo::base {

// The last line of a text that is not blank, or nothing: of a traceback, what happened.
inline std::string_view last_line(std::string_view text) {
  text = text.substr(0, text.find_last_not_of(" \n\r\t") + 1);  // npos + 1 = 0, here and below
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace bmojo::base
