#include "bmojo/nn/selection.h"

#include <torch/torch.h>

#include <algorithm>
#include <limits>

#include "bmojo/base/error.h"
#include "bmojo/kernels/selection.h"
#include "bmojo/memory/eidetic_sets.h"
#include "bmojo/nn/ops/fused.h"
#include "bmojo/nn/ops/rows.h"

namespace bmojo::nn {
namespace {

// The pool rows of the running set, [B, m].
at::Tensor running_rows(const LayerState& state, const Layout& layout, const at::Tensor& frozen,
                        const PoolRows& pool) {
  const auto& held = state.frozen.position;
  const int64_t B = held.size(0), m = held.size(1), W = state.window.size(1);
  if (m == 0) return frozen;
  const auto start = from_host(layout.start, {B, 1}, held.device());
  const auto nothing = state.running.position == kNowhere;
  const auto position = state.running.position.masked_fill(nothing, 0);
  const auto slot = find_in_sorted(held, position).clamp_max(m - 1);
  const auto b = at::arange(B, held.options()).unsqueeze(1);
  const auto in_window = pool.window + b * W + position - (start - W);
  return choose(held.gather(1, slot) == position, frozen.gather(1, slot), in_window)
      .masked_fill(nothing, 0);
}

// The m candidates with the largest (rank, -position), by time. `candidates` [B, n] are sources by
// time, so a stable sort settles ties in favour of the earlier.
at::Tensor keep_largest(const at::Tensor& candidates, const at::Tensor& rank,
                        const at::Tensor& position, int64_t m) {
  const auto order =
      at::argsort(rank.gather(1, candidates), /*stable=*/true, 1, /*descending=*/true);
  const auto kept = candidates.gather(1, order.narrow(1, 0, m));
  const auto by_time =
      at::argsort(position.gather(1, kept), /*stable=*/true, 1, /*descending=*/false);
  return kept.gather(1, by_time);
}

constexpr auto kNotHeld =
    "forward: selection must name positions held or just read, by time, got others";

// The candidates that stand at the wanted positions [B, m].
at::Tensor keep_given(const at::Tensor& candidates, const at::Tensor& position,
                      const at::Tensor& wanted) {
  const auto match = wanted.unsqueeze(2) == position.gather(1, candidates).unsqueeze(1);
  if (!match.is_meta()) base::require(match.any(2).all().item<bool>(), kNotHeld);
  return candidates.gather(1, match.to(torch::kByte).argmax(2));
}

// The pieces as waves: wave i holds each sequence's i-th piece, so all advance together.
struct Waves {
  at::Tensor tokens;  // [waves, B, Q] sources of the piece's tokens
  at::Tensor fresh;   // [waves, B, 1] the piece begins a document: every memory is empty
  at::Tensor inside;  // [waves, B, 1] the piece begins inside a chunk: the frozen set stays
  at::Tensor active;  // [waves, B, 1] the sequence has such a piece
  at::Tensor slot;    // [P] wave * B + sequence of each piece
};

Waves make_waves(const Layout& layout, int64_t window, int64_t first_token, int64_t nothing,
                 at::Device device) {
  const int64_t n = layout.num_waves, B = layout.batch, Q = layout.queries.max_queries;
  std::vector<int64_t> tokens(n * B * Q, nothing), fresh(n * B, 0), inside(n * B, 0),
      active(n * B, 0), slot;
  for (const auto& piece : layout.pieces) {
    const int64_t at = piece.wave * B + piece.sequence;
    for (int64_t q = 0; q < piece.count; ++q) tokens[at * Q + q] = first_token + piece.column + q;
    fresh[at] = piece.position == 0;
    inside[at] = !memory::begins_chunk(piece.position, window);
    active[at] = 1;
    slot.push_back(at);
  }
  const auto flags = [&](const std::vector<int64_t>& values) {
    return from_host(values, {n, B, 1}, device).to(torch::kBool);
  };
  return {from_host(tokens, {n, B, Q}, device), flags(fresh), flags(inside), flags(active),
          from_host(slot, device)};
}

// What the sets of the incoming state hold, as sources; empty places are left out.
memory::EideticSets held_sets(const Candidates& c, const at::TensorAccessor<int64_t, 2>& position,
                              int64_t b) {
  memory::EideticSets sets;
  for (int64_t j = 0; j < c.num_held; ++j) {
    if (position[b][j] != kNowhere) sets.frozen.push_back(j);
    if (position[b][c.num_held + j] != kNowhere) sets.running.push_back(c.num_held + j);
  }
  return sets;
}

// The places of `candidates` [n], sources by time, that stand at the wanted positions [m], by time.
void find_given(const std::vector<int64_t>& candidates,
                const at::TensorAccessor<int64_t, 1>& position,
                const at::TensorAccessor<int64_t, 1>& wanted, std::vector<int64_t>& places) {
  places.clear();
  int64_t place = 0;
  for (int64_t j = 0; j < wanted.size(0) && wanted[j] != kNowhere; ++j, ++place) {
    while (place < std::ssize(candidates) && position[candidates[place]] != wanted[j]) ++place;
    base::require(place < std::ssize(candidates), kNotHeld);
    places.push_back(place);
  }
}

// [B, C] double: what is larger is kept first, and of equals the earlier.
at::Tensor rank_of(const Candidates& c, const Choice& choice) {
  const auto innovation = c.innovation.detach().to(at::kDouble);
  // Ranks by innovation stay on their device.
  if (choice.rule == "innovation" || c.position.is_meta()) return innovation;
  const auto host = innovation.cpu().contiguous(), position = c.position.cpu().contiguous(),
             token = c.token.cpu().contiguous();
  auto rank = at::empty(c.position.sizes(), at::kDouble);
  for (int64_t i = 0; i < rank.numel(); ++i)
    rank.data_ptr<double>()[i] =
        memory::eidetic_rank(choice.rule, choice.layer, host.data_ptr<double>()[i],
                             position.data_ptr<int64_t>()[i], token.data_ptr<int64_t>()[i]);
  return rank.to(c.position.device());
}

// Sequence by sequence and piece by piece, in one pass over the tokens. Without `given` [P, m] the
// largest of `rank` [B, C] stay.
Selection select_in_one_pass(const Candidates& c, const at::Tensor& rank, const Layout& layout,
                             int64_t window, int64_t m, const at::Tensor& given) {
  const int64_t B = layout.batch, P = std::ssize(layout.pieces), held = c.num_held,
                nothing = c.position.size(1) - 1;
  const auto position = c.position.accessor<int64_t, 2>();
  const auto ranks = rank.accessor<double, 2>();
  const auto empty = at::full({P, m}, nothing, c.position.options());
  Selection out{empty, at::full({B, m}, nothing, empty.options()),
                at::full({B, m}, nothing, empty.options()), at::full_like(empty, kNowhere)};
  auto visible = out.visible.accessor<int64_t, 2>(), kept = out.kept.accessor<int64_t, 2>(),
       frozen = out.frozen.accessor<int64_t, 2>(), running = out.running.accessor<int64_t, 2>();
  const auto put = [](const std::vector<int64_t>& set, at::TensorAccessor<int64_t, 1> to) {
    std::ranges::copy(set, to.data());
  };

  std::vector<memory::EideticSets> all_sets;
  for (int64_t b = 0; b < B; ++b) all_sets.push_back(held_sets(c, position, b));
  std::vector<double> values;
  std::vector<int64_t> places, scratch;
  for (int64_t i = 0; i < P; ++i) {
    const auto& piece = layout.pieces[i];
    auto& sets = all_sets[piece.sequence];
    sets.begin(piece.position, window);
    put(sets.frozen, visible[i]);
    auto candidates = sets.running;
    for (int64_t q = 0; q < piece.count; ++q) candidates.push_back(2 * held + piece.column + q);
    if (given.defined()) {
      find_given(candidates, position[piece.sequence], given.accessor<int64_t, 2>()[i], places);
    } else {
      values.clear();
      for (const auto source : candidates) values.push_back(ranks[piece.sequence][source]);
      kernels::keep_largest(values, m, places, scratch);
    }
    sets.running.clear();
    for (const auto place : places) {
      sets.running.push_back(candidates[place]);
      kept[i][std::ssize(sets.running) - 1] = position[piece.sequence][candidates[place]];
    }
  }
  for (int64_t b = 0; b < B; ++b) {
    put(all_sets[b].frozen, frozen[b]);
    put(all_sets[b].running, running[b]);
  }
  return out;
}

}  // namespace

at::Tensor Candidates::flat(const at::Tensor& which, const at::Tensor& source) const {
  return which.unsqueeze(1) * position.size(1) + source;
}

Candidates gather_candidates(const LayerState& state, const Layout& layout,
                             const at::Tensor& innovation_BL, const at::Tensor& token_BL,
                             const PoolRows& pool) {
  const int64_t B = layout.batch, L = layout.length, m = state.frozen.position.size(1);
  const auto whole = layout.positions.options();
  const auto nothing = [&](double value, const at::TensorOptions& options) {
    return at::full({B, 1}, value, options);
  };
  const auto rows = [&](int64_t first, int64_t count) {
    return at::arange(first, first + B * count, whole).view({B, count});
  };
  const auto frozen_rows = rows(pool.eidetic, m);
  const auto& [frozen, running] = std::tie(state.frozen, state.running);
  return {.num_held = frozen.position.size(1),
          .innovation = at::cat({frozen.innovation, running.innovation, innovation_BL,
                                 nothing(1, innovation_BL.options())},
                                1),
          .position = at::cat({frozen.position, running.position, layout.positions,
                               at::full({B, 1}, kNowhere, whole)},
                              1),
          .token = at::cat({frozen.token, running.token, token_BL, nothing(-1, whole)}, 1),
          .row = at::cat({frozen_rows, running_rows(state, layout, frozen_rows, pool),
                          rows(pool.tokens, L), nothing(0, whole)},
                         1)};
}

Selection select(const Candidates& c, const Choice& choice, const Layout& layout, int64_t window,
                 int64_t m) {
  torch::NoGradGuard choice_has_no_gradient;
  const auto& given = choice.given;
  base::require(
      choice.rule != "oracle" || given.defined(),
      "forward: eidetic_rule=oracle must be told what to keep, got no task's sources; use "
      "train --task or eval --task");
  if (given.defined()) {
    check_shape("forward", "selection", given, {std::ssize(layout.pieces), m});
    base::require(given.scalar_type() == at::kLong, "forward: selection must be Long, got {}",
                  c10::toString(given.scalar_type()));
  }
  const auto by_rule = rank_of(c, choice);
  if (c.position.is_cpu() && !ReferenceOnly::active())
    return select_in_one_pass(c, by_rule, layout, window, m, given.defined() ? given.cpu() : given);
  const auto device = c.position.device();
  const int64_t B = layout.batch, held = c.num_held, nothing = c.position.size(1) - 1;
  const auto waves = make_waves(layout, window, 2 * held, nothing, device);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto rank =
      by_rule.masked_fill(by_rule != by_rule, -1).masked_fill(c.position == kNowhere, -kInfinity);
  const auto empty = at::full({B, m}, nothing, c.position.options());
  const auto block = [&](int64_t first) {
    auto set = empty.clone();
    set.narrow(1, 0, held).copy_(at::arange(first, first + held, c.position.options()));
    return set;
  };
  at::Tensor wanted;
  if (given.defined()) {
    wanted = at::full({layout.num_waves * B, m}, kNowhere, c.position.options());
    wanted.index_copy_(0, waves.slot, given.to(device));
  }

  auto frozen = block(0), running = block(held);
  std::vector<at::Tensor> visible, kept;
  for (int64_t i = 0; i < layout.num_waves; ++i) {
    const auto active = waves.active[i];
    running = choose(waves.fresh[i], empty, running);
    frozen = choose(active & ~waves.inside[i], running, frozen);
    visible.push_back(frozen);
    const auto candidates = at::cat({running, waves.tokens[i]}, 1);
    const auto next = given.defined()
                          ? keep_given(candidates, c.position, wanted.narrow(0, i * B, B))
                          : keep_largest(candidates, rank, c.position, m);
    running = choose(active, next, running);
    kept.push_back(c.position.gather(1, running));
  }
  return {.visible = take_rows(at::cat(visible), waves.slot),
          .frozen = frozen,
          .running = running,
          .kept = take_rows(at::cat(kept), waves.slot)};
}

at::Tensor wanted_selection(const Layout& layout, const std::vector<std::vector<int64_t>>& wanted,
                            int64_t m) {
  base::require(std::ssize(wanted) == layout.batch,
                "forward: wanted must list positions for each sequence = {}, got {}", layout.batch,
                wanted.size());
  const auto out = at::full({std::ssize(layout.pieces), m}, kNowhere, at::kLong);
  for (size_t i = 0; i < layout.pieces.size(); ++i) {
    const auto& piece = layout.pieces[i];
    std::vector<int64_t> kept;
    for (const auto position : wanted[static_cast<size_t>(piece.sequence)])
      if (position < piece.position + piece.count && std::ssize(kept) < m) kept.push_back(position);
    std::ranges::sort(kept);
    std::ranges::copy(kept, out.data_ptr<int64_t>() + static_cast<int64_t>(i) * m);
  }
  return out;
}

}  // namespace bmojo::nn
