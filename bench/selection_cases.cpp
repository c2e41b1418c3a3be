#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>

#include "bench/cases.h"
#include "bmojo/nn/ops/fused.h"
#include "bmojo/nn/selection.h"

// Innovation Selection as the layer calls it: one row of innovations in, the sets out. There is no
// arithmetic and no gradient: the kernel and its reference must agree in every number.

namespace bmojo::bench {
namespace {

enum class Values { random, few, equal, rising, falling, special };

struct Shape {
  const char* name;
  int64_t B, L, w, m;      // rows, tokens a call, window, members
  int64_t calls = 1;       //
  bool documents = false;  // a new one every 11 tokens
  bool ragged = false;     // rows of different lengths, one of them empty
  Values values = Values::random;
  bool timed = false;
};

const Shape kShapes[] = {
    {.name = "one_token", .B = 1, .L = 1, .w = 1, .m = 1},
    {.name = "one_member", .B = 2, .L = 40, .w = 8, .m = 1},
    {.name = "one_chunk", .B = 2, .L = 16, .w = 16, .m = 4},
    {.name = "chunk_and_one", .B = 2, .L = 17, .w = 16, .m = 4},
    {.name = "chunks", .B = 2, .L = 64, .w = 16, .m = 8},
    {.name = "chunks_of_one", .B = 2, .L = 24, .w = 1, .m = 4},
    {.name = "room_for_all", .B = 2, .L = 32, .w = 8, .m = 32},
    {.name = "more_room", .B = 2, .L = 32, .w = 8, .m = 100},
    {.name = "more_than_a_chunk", .B = 2, .L = 64, .w = 8, .m = 24},
    {.name = "many_rows", .B = 16, .L = 32, .w = 8, .m = 4},
    {.name = "few_values", .B = 2, .L = 64, .w = 16, .m = 8, .values = Values::few},
    {.name = "equal", .B = 2, .L = 64, .w = 16, .m = 8, .values = Values::equal},
    {.name = "rising", .B = 2, .L = 64, .w = 16, .m = 8, .values = Values::rising},
    {.name = "falling", .B = 2, .L = 64, .w = 16, .m = 8, .values = Values::falling},
    {.name = "special", .B = 2, .L = 64, .w = 16, .m = 8, .values = Values::special},
    {.name = "documents", .B = 2, .L = 64, .w = 8, .m = 4, .documents = true},
    {.name = "ragged", .B = 4, .L = 64, .w = 16, .m = 8, .ragged = true},
    {.name = "two_calls", .B = 2, .L = 24, .w = 16, .m = 8, .calls = 2},
    {.name = "steps", .B = 2, .L = 1, .w = 8, .m = 4, .calls = 48},
    {.name = "calls_ragged",
     .B = 4,
     .L = 24,
     .w = 16,
     .m = 8,
     .calls = 3,
     .documents = true,
     .ragged = true},
    {.name = "odd_a", .B = 1, .L = 7, .w = 3, .m = 2},
    {.name = "odd_b", .B = 3, .L = 37, .w = 6, .m = 9},
    {.name = "odd_c", .B = 5, .L = 65, .w = 11, .m = 3},
    {.name = "odd_d", .B = 1, .L = 99, .w = 11, .m = 17},
    {.name = "odd_few_values", .B = 3, .L = 43, .w = 7, .m = 5, .values = Values::few},
    {.name = "odd_special", .B = 3, .L = 45, .w = 9, .m = 13, .values = Values::special},
    {.name = "odd_documents", .B = 3, .L = 45, .w = 7, .m = 3, .documents = true},
    {.name = "odd_ragged", .B = 5, .L = 43, .w = 9, .m = 6, .ragged = true},
    {.name = "odd_calls", .B = 3, .L = 13, .w = 9, .m = 5, .calls = 3},
    {.name = "odd_all",
     .B = 5,
     .L = 19,
     .w = 5,
     .m = 7,
     .calls = 3,
     .documents = true,
     .ragged = true,
     .values = Values::few},
    {.name = "long", .B = 1, .L = 4000, .w = 100, .m = 64},
    {.name = "bmojo_2k", .B = 1, .L = 2048, .w = 512, .m = 64, .timed = true},
    {.name = "bmojo_16k", .B = 1, .L = 16'384, .w = 512, .m = 64, .timed = true},
};

// Innovations [B, calls · L].
at::Tensor make(const Shape& s) {
  const int64_t L = s.calls * s.L;
  const auto time = at::arange(s.B * L, at::kFloat).view({s.B, L}) / static_cast<double>(L);
  const auto random = normal({s.B, L}, 1, 1).abs();
  switch (s.values) {
    case Values::random:
      return random;
    case Values::few:
      return (2 * random).floor();
    case Values::equal:
      return at::ones_like(random);
    case Values::rising:
      return time;
    case Values::falling:
      return static_cast<double>(s.B) - time;
    case Values::special:
      break;
  }
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(),
                   kInfinity = std::numeric_limits<double>::infinity();
  const auto kind = (10 * random).floor().remainder(10);
  return random.masked_fill(kind < 2, kNaN)
      .masked_fill(kind == 2, kInfinity)
      .masked_fill(kind == 3, 0);
}

// Every call's place in the rows: what the layers of a model share, so no part of the selection.
struct Call {
  nn::Layout layout;
  int64_t first;      // its column in the innovations
  at::Tensor tokens;  // [B, L]
};

std::vector<Call> make_calls(const Shape& s) {
  model::Config config;
  config.num_layers = 1;
  config.window = s.w;
  config.eidetic_tokens = s.m;
  std::vector<Call> calls;
  nn::Cursor cursor;
  for (int64_t i = 0; i < s.calls; ++i) {
    nn::Sequences rows{.batch = s.B, .length = s.L, .lengths = {}, .documents = {}};
    for (int64_t b = 0; s.ragged && b < s.B; ++b)
      rows.lengths.push_back((b + i) % s.B == 1 ? 0 : s.L - (b * 11) % s.L);
    for (int64_t b = 0; s.documents && b < s.B; ++b)
      for (int64_t t = 0; t < s.L; ++t) rows.documents.push_back((i * s.L + t + 3 * b) / 11);
    nn::Layout layout(config, rows, cursor, at::kCPU);
    cursor = layout.next;
    calls.push_back({std::move(layout), i * s.L, at::full({s.B, s.L}, -1, at::kLong)});
  }
  return calls;
}

// By piece the set its queries see and the set after it, by row the two sets at the end: positions.
Tensors fused(const Shape& s, const std::vector<Call>& calls, const at::Tensor& innovation) {
  const auto whole = at::TensorOptions(at::kLong);
  nn::LayerState state;
  state.frozen = {at::zeros({s.B, 0}, innovation.options()), at::zeros({s.B, 0}, whole),
                  at::zeros({s.B, 0}, whole)};
  state.running = state.frozen;
  const auto rows = at::arange(s.B, whole);
  const auto padded = [&](const at::Tensor& positions) {
    return at::constant_pad_nd(positions, {0, s.m - positions.size(1)}, nn::kNowhere);
  };
  Tensors visible, kept;
  for (const auto& [layout, first, tokens] : calls) {
    const int64_t W = layout.window_rows_in, held = state.frozen.position.size(1);
    state.window = at::empty({s.B, W, 0}, innovation.options());  // only its size is asked for
    const auto all =
        nn::gather_candidates(state, layout, innovation.narrow(1, first, s.L), tokens,
                              {.window = 1, .tokens = 1 + s.B * W, .eidetic = 1 + s.B * (W + s.L)});
    const auto chosen = nn::select(all, {}, layout, s.w, std::max(layout.eidetic_rows, held));
    const auto pick = [&](const at::Tensor& x, const at::Tensor& of, const at::Tensor& source) {
      return x.flatten().index_select(0, all.flat(of, source).flatten()).view(source.sizes());
    };
    const auto set = [&](const at::Tensor& source) -> nn::EideticSet {
      return {pick(all.innovation, rows, source), pick(all.position, rows, source),
              pick(all.token, rows, source)};
    };
    visible.push_back(padded(pick(all.position, layout.piece_sequence, chosen.visible)));
    kept.push_back(padded(chosen.kept));
    state.frozen = set(chosen.frozen);
    state.running = set(chosen.running);
  }
  return {at::cat(visible), at::cat(kept), padded(state.frozen.position),
          padded(state.running.position)};
}

// The m largest of `innovation` by time, the earlier of two equals, NaN below every number.
std::vector<int64_t> largest(const std::vector<double>& innovation, int64_t count, int64_t m) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(), [&](int64_t p) {
    const double x = innovation[static_cast<size_t>(p)];
    return std::isnan(x) ? -1 : x;
  });
  order.resize(static_cast<size_t>(std::min(count, m)));
  std::ranges::sort(order);
  order.resize(static_cast<size_t>(m), nn::kNowhere);
  return order;
}

// The same by sorting all that a document has had, for every piece anew.
Tensors reference(const Shape& s, const std::vector<Call>& calls, const at::Tensor& innovation) {
  const auto wide = innovation.to(at::kDouble).contiguous();
  const auto epsilon = wide.accessor<double, 2>();
  const std::vector<int64_t> nothing(static_cast<size_t>(s.m), nn::kNowhere);
  std::vector<std::vector<double>> document(static_cast<size_t>(s.B));
  std::vector<std::vector<int64_t>> visible, kept, frozen(document.size(), nothing),
      running(document.size(), nothing);
  for (const auto& [layout, first, tokens] : calls)
    for (const auto& piece : layout.pieces) {
      const auto b = static_cast<size_t>(piece.sequence);
      if (piece.position == 0) document[b].clear();
      frozen[b] = largest(document[b], piece.position / s.w * s.w, s.m);
      for (int64_t q = 0; q < piece.count; ++q)
        document[b].push_back(epsilon[piece.sequence][first + piece.column + q]);
      running[b] = largest(document[b], piece.position + piece.count, s.m);
      visible.push_back(frozen[b]);
      kept.push_back(running[b]);
    }
  const auto tensor = [&](const std::vector<std::vector<int64_t>>& sets) {
    auto out = at::empty({std::ssize(sets), s.m}, at::kLong);
    for (size_t i = 0; i < sets.size(); ++i)
      std::ranges::copy(sets[i], out.data_ptr<int64_t>() + static_cast<int64_t>(i) * s.m);
    return out;
  };
  return {tensor(visible), tensor(kept), tensor(frozen), tensor(running)};
}

Tensors run(const Shape& s, const std::vector<Call>& calls, const Tensors& in) {
  // select itself is the same in every type: the choice is made here.
  const auto innovation = in[0].detach();
  const bool exact = innovation.scalar_type() == at::kDouble || nn::ReferenceOnly::active();
  return exact ? reference(s, calls, innovation) : fused(s, calls, innovation);
}

}  // namespace

std::vector<Case> selection_cases() {
  std::vector<Case> cases;
  for (const auto& s : kShapes) {
    const auto calls = std::make_shared<const std::vector<Call>>(make_calls(s));
    int64_t pieces = 0;
    for (const auto& call : *calls) pieces += std::ssize(call.layout.pieces);
    // An innovation is read and compared once, a member written once a piece.
    const double tokens = static_cast<double>(s.B * s.calls * s.L);
    cases.push_back({.kernel = "selection",
                     .name = s.name,
                     .make = [s]() -> Tensors { return {make(s)}; },
                     .run = [s, calls](const Tensors& in) { return run(s, *calls, in); },
                     .forward = {tokens, 4 * tokens + 8 * static_cast<double>(pieces * s.m)},
                     .backward = {},
                     .counts = {s.L, s.w, s.m, pieces},
                     .timed = s.timed});
  }
  return cases;
}

}  // namespace bmojo::bench
