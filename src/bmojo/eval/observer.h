#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

namespace bmojo::eval {

// The memories of a layer with attention, in the order of its keys.
enum class MemoryKind { eidetic, fading, window };
inline constexpr std::array kMemories = {"eidetic", "fading", "window"};

// Where a token stands: in a sequence of the call (its number among the readings), at a column of
// that reading, and at a position of its document.
struct Place {
  int64_t sequence = 0, column = 0, position = 0;
};

// What a layer with eidetic memory did with a run of tokens of one chunk. Position 0 begins a
// document: what was kept before it is gone.
struct PieceTold {
  int64_t layer = 0;
  Place first;                          // of its tokens
  std::span<const float> innovation;    // [count] ε of each
  std::span<const int64_t> seen, kept;  // positions of M: what they saw, and what it is after them
  bool ends_chunk = false;              // the next token will see `kept`

  // Members that the chunk's tokens see and later ones will not, if it ends here; by time.
  std::vector<int64_t> left() const {
    std::vector<int64_t> out;
    std::ranges::set_difference(seen, kept, std::back_inserter(out));
    return out;
  }
};

// A key as a person knows it: where in the document its token stands, and what remembers it.
struct SeenKey {
  MemoryKind memory = MemoryKind::window;
  int64_t position = 0;
};

// What one token attended to.
struct AttentionTold {
  int64_t layer = 0, num_heads = 0;
  Place query;
  std::span<const SeenKey> keys;   // [n] in the layer's order
  std::span<const double> weight;  // [H, n], of each head sums to 1
};

// Is told what happens inside the layers while a model reads. Where there is none, nothing is
// computed for it.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_piece(const PieceTold&) {}
  // Whether the attention of any token is asked for in this call, and of which.
  virtual bool asks_attention() const { return false; }
  virtual bool asks_attention(int64_t /*sequence*/, int64_t /*column*/) const { return false; }
  virtual void on_attention(const AttentionTold&) {}
};

}  // namespace bmojo::eval
