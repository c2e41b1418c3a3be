#include "bmojo/nn/attention_weights.h"

#include <torch/torch.h>

#include <array>
#include <cmath>

#include "bmojo/base/error.h"
#include "bmojo/nn/ops/memory_attention.h"
#include "bmojo/nn/ops/types.h"

namespace bmojo::nn {
namespace {

SeenKey key_at(const AttentionTrace& in, const Layout& layout, int64_t piece, int64_t j) {
  const int64_t m = in.eidetic.defined() ? in.eidetic.size(1) : 0;
  if (j < m) return {Memory::eidetic, in.eidetic[piece][j].item<int64_t>()};
  if (j < m + in.num_fading) return {Memory::fading, layout.fading.oldest[piece] + j - m};
  return {Memory::window, layout.window.oldest[piece] + j - m - in.num_fading};
}

// The attention as it was, but with the values of all keys of other memories 0. A row of the pool
// may serve two memories, so there the value is 0 in a copy, and such keys name the copy.
at::Tensor with_values_of(Memory memory, const AttentionTrace& in, const at::Tensor& pool,
                          const QueryRuns& runs) {
  auto silent = pool.clone();
  silent.select(1, 1).zero_();
  const int64_t m = in.eidetic.defined() ? in.eidetic.size(1) : 0, S = in.keys.index.size(1);
  const std::array border = {int64_t{0}, m, m + in.num_fading, S};
  const auto which = static_cast<size_t>(memory);
  auto index = in.keys.index + pool.size(0);
  const auto own = at::indexing::Slice(border[which], border[which + 1]);
  index.index_put_({at::indexing::Slice(), own}, in.keys.index.index({at::indexing::Slice(), own}));
  return memory_attention({.q = in.q,
                           .pool = at::cat({pool, silent}),
                           .bias = in.bias,
                           .runs = runs,
                           .keys = {index, in.keys.from, in.keys.until}});
}

}  // namespace

at::Tensor attention_part(const AttentionTrace& in, const QueryRuns& runs, Memory memory) {
  base::require(in.q.defined(), "attention_part: attention must be kept by its call, got none");
  return with_values_of(memory, in, in.pool, runs);
}

at::Tensor attention_share(const AttentionTrace& in, const QueryRuns& runs, Memory memory) {
  base::require(in.q.defined(), "attention_share: attention must be kept by its call, got none");
  auto ones = in.pool.clone();
  ones.select(1, 1).fill_(1);
  return with_values_of(memory, in, ones, runs).select(-1, 0);
}

AttentionWeights attention_weights(const AttentionTrace& in, const Layout& layout, int64_t sequence,
                                   int64_t column) {
  base::require(in.q.defined(), "attention_weights: attention must be kept by its call, got none");
  base::require(
      sequence >= 0 && sequence < layout.batch && column >= 0 && column < layout.lengths[sequence],
      "attention_weights: sequence and column must name a token of the call, got {} and {}",
      sequence, column);
  const int64_t token = sequence * layout.length + column, Q = layout.queries.max_queries;
  const int64_t query = layout.queries.query[token].item<int64_t>();
  const int64_t piece = query / Q, number = query % Q;
  const auto seen =
      ((in.keys.from[piece] <= number) & (in.keys.until[piece] > number)).nonzero().squeeze(1);
  const auto rows = in.pool.index_select(0, in.keys.index[piece].index_select(0, seen));
  const int64_t H = in.q.size(1), d = in.q.size(2), G = in.pool.size(2);
  const auto q = widen(in.q[token]).reshape({G, H / G, d});
  const auto k = widen(rows.select(1, 0)).permute({1, 2, 0});  // [G, d, n]
  // score_j = q·k_j / √d + b_j
  auto scores = at::matmul(q, k).reshape({H, -1}) / std::sqrt(static_cast<double>(d));
  if (in.bias.defined()) {
    const int64_t without = in.keys.index.size(1) - in.bias.size(1);
    scores = scores + at::constant_pad_nd(in.bias[piece], {0, without}).index_select(0, seen);
  }
  AttentionWeights out;
  for (int64_t i = 0; i < seen.size(0); ++i)
    out.keys.push_back(key_at(in, layout, piece, seen[i].item<int64_t>()));
  out.weight = at::softmax(scores, -1);
  out.value = rows.select(1, 1);
  return out;
}

}  // namespace bmojo::nn
