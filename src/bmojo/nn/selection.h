#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "bmojo/nn/layout.h"
#include "bmojo/nn/state.h"

namespace bmojo::nn {

// Everything a sequence could hold after a call, C = 2 m_in + L + 1 places:
// [frozen | running | this call's tokens | nothing]. Sources below are indices into C.
struct Candidates {
  int64_t num_held;       // m_in
  at::Tensor innovation;  // [B, C], with gradient
  at::Tensor position;    // [B, C]; kNowhere where there is nothing
  at::Tensor token;       // [B, C]
  at::Tensor row;         // [B, C] the key and value, a row of the pool; 0: none

  // [n, m] sources of sequence `which[i]` each, as indices into all of them.
  at::Tensor flat(const at::Tensor& which, const at::Tensor& source) const;
};

// Where the pool of keys and values has its parts: the first row of each.
struct PoolRows {
  int64_t window = 0, tokens = 0, fading = 0, eidetic = 0;  // [B W], [B L], …, [B m_in]
};

// [frozen | running | tokens | nothing]: running members come from the frozen set or, when they
// entered since the chunk began, from the window.
Candidates gather_candidates(const LayerState& state, const Layout& layout,
                             const at::Tensor& innovation_BL, const at::Tensor& token_BL,
                             const PoolRows& pool);

// What Innovation Selection kept; m members each, in time order.
struct Selection {
  at::Tensor visible;  // [P, m] sources: the frozen set each piece's queries see
  at::Tensor frozen;   // [B, m] sources: the frozen set at the end
  at::Tensor running;  // [B, m] sources: the set at the end
  at::Tensor kept;     // [P, m] positions of the set after each piece; kNowhere: nothing
};

// What is chosen by. `rule` ranks the tokens (Config::eidetic_rule); `given` [P, m] (as
// Selection::kept; undefined: none) replaces the choice, so that two computations can be compared
// on the same memories. The rule "oracle" is always given its choice.
struct Choice {
  std::string_view rule = "innovation";
  int64_t layer = 0;
  at::Tensor given = {};
};

// The bounded streaming rule, a chunk at a time: after each piece the m tokens with the largest
// (rank, -position) stay, NaN below all numbers.
Selection select(const Candidates& candidates, const Choice& choice, const Layout& layout,
                 int64_t window, int64_t m);

// The choice of a layer that is told what to keep: of the positions that `wanted` lists for each
// sequence, the most wanted first, at most m of those already read.
at::Tensor wanted_selection(const Layout& layout, const std::vector<std::vector<int64_t>>& wanted,
                            int64_t m);

}  // namespace bmojo::nn
