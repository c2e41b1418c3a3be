#include <torch/torch.h>

#include <memory>

#include "bench/cases.h"
#include "bmojo/nn/ops/memory_attention.h"

namespace bmojo::bench {
namespace {

enum Feature {
  kSliding = 1,  // a fading key is seen by `fading` queries; else by the whole piece
  kHoles = 2,    // keys that no query sees, between others
  kGaps = 4,     // a token of no piece between two pieces
  kStrided = 8,  // q is part of a wider tensor
  kTimed = 16,
};

struct Shape {
  const char* name;
  int64_t P, Q;     // pieces of Q queries, the last one half as long
  int64_t H, G, d;  //
  int64_t window, fading, eidetic;
  int features = 0;
  double scale = 1;  // of q: large means a sharp softmax

  bool has(Feature feature) const { return (features & feature) != 0; }
};

// name, P, Q, H, G, d, window, fading, eidetic, features, scale
const Shape kShapes[] = {
    {"one_token", 1, 1, 1, 1, 2, 1, 2, 0},
    {"one_query", 3, 1, 8, 2, 64, 16, 0, 8},
    {"one_head", 2, 16, 1, 1, 16, 8, 0, 0},
    {"window", 3, 16, 4, 2, 16, 16, 0, 0},
    {"window_wide", 2, 40, 4, 4, 32, 64, 0, 0},
    {"window_narrow", 2, 64, 4, 1, 32, 3, 0, 0},
    {"full", 1, 100, 4, 2, 16, 1000, 0, 0},
    {"full_many_heads", 1, 33, 40, 1, 8, 1000, 0, 0},
    {"full_blocks", 1, 300, 4, 2, 16, 1000, 0, 0},
    {"fading", 3, 16, 4, 2, 16, 16, 4, 0},
    {"eidetic", 3, 16, 4, 2, 16, 16, 0, 24},
    {"all", 4, 32, 8, 2, 64, 32, 8, 16},
    {"sliding", 3, 16, 4, 2, 16, 16, 4, 0, kSliding},
    {"sliding_one_query", 5, 1, 8, 2, 32, 4, 3, 0, kSliding},
    {"sliding_wide", 3, 16, 4, 4, 16, 16, 24, 0, kSliding},
    {"sliding_all", 4, 32, 8, 2, 64, 32, 8, 16, kSliding | kGaps},
    {"holes", 3, 24, 4, 2, 16, 16, 8, 24, kHoles},
    {"holes_one_head", 2, 40, 1, 1, 8, 8, 0, 0, kHoles},
    {"sliding_holes", 3, 64, 4, 2, 32, 64, 16, 16, kSliding | kHoles},
    {"gaps", 4, 16, 4, 2, 16, 16, 0, 0, kGaps},
    {"strided", 2, 24, 4, 2, 16, 16, 0, 8, kStrided},
    {"sharp", 2, 24, 4, 2, 16, 16, 0, 8, 0, 30},
    {"flat", 2, 24, 4, 2, 16, 16, 0, 0, 0, 1e-30},
    {"odd_a", 1, 5, 1, 1, 2, 3, 0, 0},
    {"odd_b", 3, 13, 3, 3, 6, 5, 3, 0},
    {"odd_c", 2, 39, 6, 2, 10, 11, 0, 9},
    {"odd_d", 5, 19, 15, 3, 14, 19, 5, 9},
    {"odd_e", 1, 71, 7, 1, 3, 999, 0, 0},
    {"odd_f", 2, 51, 5, 5, 33, 20, 0, 51},
    {"odd_g", 3, 7, 9, 3, 66, 30, 9, 0},
    {"odd_h", 1, 99, 35, 1, 5, 17, 0, 3},
    {"odd_blocks", 2, 211, 3, 3, 7, 201, 0, 9},
    {"odd_gaps", 3, 9, 6, 3, 18, 4, 0, 5, kGaps | kStrided},
    {"odd_sliding", 3, 13, 3, 1, 6, 5, 3, 1, kSliding},
    {"odd_sliding_wide", 5, 11, 6, 2, 10, 11, 19, 3, kSliding},
    {"odd_sliding_gaps", 3, 17, 5, 1, 9, 13, 6, 11, kSliding | kGaps | kStrided},
    {"odd_holes", 3, 21, 6, 2, 10, 7, 3, 11, kHoles},
    {"odd_sliding_holes", 2, 43, 3, 3, 5, 12, 5, 7, kSliding | kHoles},
    {"long", 2, 200, 2, 1, 16, 200, 0, 64},
    {"bmojo_2k", 4, 512, 8, 2, 64, 512, 16, 64, kTimed},
    {"window_2k", 4, 512, 8, 2, 64, 512, 0, 0, kTimed},
    {"full_2k", 1, 2048, 8, 2, 64, 4096, 0, 0, kTimed},
};

// The timed cases have equal pieces, so that their visible pairs are those of a plain window.
int64_t queries(const Shape& s, int64_t piece) {
  return piece + 1 == s.P && s.P > 1 && !s.has(kTimed) ? (s.Q + 1) / 2 : s.Q;
}
int64_t window_keys(const Shape& s) { return s.Q + std::min(s.window, s.P == 1 ? 1 : s.Q + 1) - 1; }
// As the layout has them: a sliding key stands w before the first query that sees it.
int64_t fading_keys(const Shape& s) {
  return s.has(kSliding) && s.fading > 0 ? s.fading + s.Q - 1 : s.fading;
}
int64_t num_keys(const Shape& s) { return s.eidetic + fading_keys(s) + window_keys(s); }
int64_t num_tokens(const Shape& s) {
  int64_t count = s.has(kGaps) ? s.P : 0;
  for (int64_t i = 0; i < s.P; ++i) count += queries(s, i);
  return count;
}
int64_t num_rows(const Shape& s) {
  const int64_t R = s.P * s.Q + s.window % 97 + s.eidetic + 3;
  return R % 8 == 0 ? R + 1 : R;
}

struct Range {
  int64_t from = 0, until = 0;
};

// An empty range, of every kind: it ends before it begins, where it begins, before the piece.
Range hole(const Shape& s, int64_t p, int64_t j) {
  const int64_t middle = queries(s, p) / 2;
  const Range kinds[] = {{middle + 1, middle - 1}, {middle, middle}, {0, -3}};
  return kinds[j / 3 % 3];
}

// The queries of piece p that see key j of [eidetic | fading | window].
Range seen_by(const Shape& s, int64_t p, int64_t j) {
  const int64_t count = queries(s, p), fading = j - s.eidetic, key = fading - fading_keys(s);
  // The query that stands where this window key does. It sees at least that one or the one before.
  const int64_t own = key - (window_keys(s) - s.Q);
  if (s.has(kHoles) && (key < 0 ? j % 3 == 1 : own % 3 == 2)) return hole(s, p, j);
  if (p == 0 && own < 0 && !(s.P == 1 && key < 0)) return {};  // before the document
  if (j < s.eidetic) return {(j * 5) % s.Q, count};
  if (key >= 0) return {std::max<int64_t>(0, own), std::min(count, own + s.window)};
  if (!s.has(kSliding)) return {0, count};
  const int64_t first = fading - s.fading + 1;
  if (first >= count) return {};
  return {std::max<int64_t>(0, first), std::min(count, fading + 1)};
}

struct Lists {
  nn::QueryRuns runs;
  nn::KeyList keys;
};

Lists lists(const Shape& s) {
  const int64_t S = num_keys(s), memory = s.eidetic + fading_keys(s);
  std::vector<nn::QueryRuns::Run> runs;
  int64_t token = 0;
  for (int64_t i = 0; i < s.P; ++i) {
    runs.push_back({token, queries(s, i)});
    token += queries(s, i) + s.has(kGaps);
  }
  auto index = at::zeros({s.P, S}, at::kLong), from = at::zeros_like(index),
       until = at::zeros_like(index);
  auto i = index.accessor<int64_t, 2>(), f = from.accessor<int64_t, 2>(),
       u = until.accessor<int64_t, 2>();
  for (int64_t p = 0; p < s.P; ++p)
    for (int64_t j = 0; j < S; ++j) {
      // Rows are shared between pieces and memories, as a token is window first and eidetic later.
      i[p][j] = 1 + (j >= memory ? p * s.Q + j - memory : p * 7 + j * 3) % (num_rows(s) - 1);
      const auto range = seen_by(s, p, j);
      f[p][j] = range.from;
      u[p][j] = range.until;
    }
  return {nn::QueryRuns(runs, num_tokens(s), at::kCPU), {index, from, until}};
}

double visible_pairs(const nn::KeyList& keys) {
  return (keys.until - keys.from).clamp_min(0).sum().item<double>();
}

Tensors make(const Shape& s) {
  auto q = normal({num_tokens(s), s.H * s.d + (s.has(kStrided) ? 5 : 0)}, s.scale, 1)
               .narrow(1, 0, s.H * s.d)
               .unflatten(1, {s.H, s.d});
  Tensors in = {q, normal({num_rows(s), 2, s.G, s.d}, 1, 2)};
  if (s.eidetic > 0) in.push_back(normal({s.P, s.eidetic}, 1, 3));
  return in;
}

Tensors run(const Lists& lists, const Tensors& in) {
  return {nn::memory_attention({.q = in[0],
                                .pool = in[1],
                                .bias = in.size() > 2 ? in[2] : at::Tensor(),
                                .runs = lists.runs,
                                .keys = lists.keys})};
}

}  // namespace

// Products alone count, those of the visible pairs: forward q·k and a v, 2 operations each a number
// of a head; backward the gradients of q, k, a and v. Scores computed again do not
// (tools/measure.py, attention_flops).
std::vector<Case> memory_attention_cases() {
  std::vector<Case> cases;
  for (const auto& s : kShapes) {
    const auto tensors = static_cast<double>(num_tokens(s) * s.H * s.d * 4);
    const double rows = static_cast<double>(s.P * num_keys(s) * 2 * s.G * s.d * 4);
    // The same for every run: the layout of a call, which all layers share.
    const auto made = std::make_shared<const Lists>(lists(s));
    const double pairs = visible_pairs(made->keys) * static_cast<double>(s.H * s.d);
    cases.push_back({.kernel = "memory_attention",
                     .name = s.name,
                     .make = [s] { return make(s); },
                     .run = [made](const Tensors& in) { return run(*made, in); },
                     .forward = {4 * pairs, 2 * tensors + rows},
                     .backward = {8 * pairs, 4 * tensors + 2 * rows},
                     .counts = {s.P, s.Q, queries(s, s.P - 1), num_keys(s)},
                     .timed = s.has(kTimed)});
  }
  return cases;
}

}  // namespace bmojo::bench
