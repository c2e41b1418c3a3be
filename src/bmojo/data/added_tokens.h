#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace bmojo::data {

// Texts that are one id wherever they stand, found before anything is split: the leftmost first, of
// those that begin at one place the longest.
class AddedTokens {
 public:
  struct Match {
    size_t begin, end;  // begin == text.size(): none
    int32_t id;
  };

  // Of two equal texts the first counts.
  void add(std::string_view text, int32_t id);
  Match find(std::string_view text, size_t from) const;

 private:
  struct Node {
    int32_t id = -1;                                      // of the text that ends here
    std::vector<std::pair<uint8_t, uint32_t>> next = {};  // byte, number of a node
  };
  uint32_t child(uint32_t node, uint8_t byte) const;  // 0: none
  Match longest_at(std::string_view text, size_t at) const;

  std::vector<Node> nodes_ = {{}};
  std::array<uint32_t, 256> first_{};  // the root's children, by byte
  std::bitset<65536> starts_;          // two bytes that may begin a text
};

}  // namespace bmojo::data
