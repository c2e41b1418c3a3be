#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "bmojo/memory/pieces.h"

namespace bmojo::memory {

// A place that holds nothing has this position: it sorts behind every other.
inline constexpr int64_t kNowhere = INT64_MAX;

// What a token is ranked by under Config::eidetic_rule: what is larger is kept first, and of equals
// the earlier. "oracle" is told what to keep, and ranks nothing.
//   innovation: ε · first: nothing, so the earlier stay · recent: the position · random:
//   random_rank(), a number in (0, 1) that looks drawn, the same on every machine
double random_rank(int64_t layer, int64_t position, int64_t token);
double eidetic_rank(std::string_view rule, int64_t layer, double innovation, int64_t position,
                    int64_t token);

// The sets of one sequence and one layer while its pieces go by (docs/model.md, Innovation
// Selection): after each piece kernels::keep_largest() leaves the m_e largest of the running set
// and the piece's tokens. A member is a number of the caller's; both sets are in time order.
struct EideticSets {
  std::vector<int64_t> frozen;   // M at the start of the chunk: what queries see
  std::vector<int64_t> running;  // M now

  // Before a piece: a new document empties both sets, a new chunk freezes what is kept. True where
  // a chunk begins.
  bool begin(int64_t position, int64_t window) {
    if (position == 0) running.clear();
    if (!begins_chunk(position, window)) return false;
    frozen = running;
    return true;
  }
};

}  // namespace bmojo::memory
