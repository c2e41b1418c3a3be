#include <torch/torch.h>

#include <memory>

#include "bench/cases.h"
#include "bmojo/nn/memory_attention.h"

namespace bmojo::bench {
namespace {

struct Shape {
  const char* name;
  int64_t P, Q;     // pieces of Q queries, the last one half as long
  int64_t H, G, d;  //
  int64_t window, fading = 0, eidetic = 0;
  bool sliding = false;  // a fading key is seen by `fading` queries; else by the whole piece
  bool holes = false;    // keys that no query sees, between others
  bool gaps = false;     // a token of no piece between two pieces
  bool strided = false;  // q is part of a wider tensor
  double scale = 1;      // of q: large means a sharp softmax
  bool timed = false;
};

const Shape kShapes[] = {
    {.name = "one_token", .P = 1, .Q = 1, .H = 1, .G = 1, .d = 2, .window = 1, .fading = 2},
    {.name = "one_query", .P = 3, .Q = 1, .H = 8, .G = 2, .d = 64, .window = 16, .eidetic = 8},
    {.name = "one_head", .P = 2, .Q = 16, .H = 1, .G = 1, .d = 16, .window = 8},
    {.name = "window", .P = 3, .Q = 16, .H = 4, .G = 2, .d = 16, .window = 16},
    {.name = "window_wide", .P = 2, .Q = 40, .H = 4, .G = 4, .d = 32, .window = 64},
    {.name = "window_narrow", .P = 2, .Q = 64, .H = 4, .G = 1, .d = 32, .window = 3},
    {.name = "full", .P = 1, .Q = 100, .H = 4, .G = 2, .d = 16, .window = 1000},
    {.name = "full_many_heads", .P = 1, .Q = 33, .H = 40, .G = 1, .d = 8, .window = 1000},
    {.name = "full_blocks", .P = 1, .Q = 300, .H = 4, .G = 2, .d = 16, .window = 1000},
    {.name = "fading", .P = 3, .Q = 16, .H = 4, .G = 2, .d = 16, .window = 16, .fading = 4},
    {.name = "eidetic", .P = 3, .Q = 16, .H = 4, .G = 2, .d = 16, .window = 16, .eidetic = 24},
    {.name = "all",
     .P = 4,
     .Q = 32,
     .H = 8,
     .G = 2,
     .d = 64,
     .window = 32,
     .fading = 8,
     .eidetic = 16},
    {.name = "sliding",
     .P = 3,
     .Q = 16,
     .H = 4,
     .G = 2,
     .d = 16,
     .window = 16,
     .fading = 4,
     .sliding = true},
    {.name = "sliding_one_query",
     .P = 5,
     .Q = 1,
     .H = 8,
     .G = 2,
     .d = 32,
     .window = 4,
     .fading = 3,
     .sliding = true},
    {.name = "sliding_wide",
     .P = 3,
     .Q = 16,
     .H = 4,
     .G = 4,
     .d = 16,
     .window = 16,
     .fading = 24,
     .sliding = true},
    {.name = "sliding_all",
     .P = 4,
     .Q = 32,
     .H = 8,
     .G = 2,
     .d = 64,
     .window = 32,
     .fading = 8,
     .eidetic = 16,
     .sliding = true,
     .gaps = true},
    {.name = "holes",
     .P = 3,
     .Q = 24,
     .H = 4,
     .G = 2,
     .d = 16,
     .window = 16,
     .fading = 8,
     .eidetic = 24,
     .holes = true},
    {.name = "holes_one_head", .P = 2, .Q = 40, .H = 1, .G = 1, .d = 8, .window = 8, .holes = true},
    {.name = "sliding_holes",
     .P = 3,
     .Q = 64,
     .H = 4,
     .G = 2,
     .d = 32,
     .window = 64,
     .fading = 16,
     .eidetic = 16,
     .sliding = true,
     .holes = true},
    {.name = "gaps", .P = 4, .Q = 16, .H = 4, .G = 2, .d = 16, .window = 16, .gaps = true},
    {.name = "strided",
     .P = 2,
     .Q = 24,
     .H = 4,
     .G = 2,
     .d = 16,
     .window = 16,
     .eidetic = 8,
     .strided = true},
    {.name = "sharp",
     .P = 2,
     .Q = 24,
     .H = 4,
     .G = 2,
     .d = 16,
     .window = 16,
     .eidetic = 8,
     .scale = 30},
    {.name = "flat", .P = 2, .Q = 24, .H = 4, .G = 2, .d = 16, .window = 16, .scale = 1e-30},
    {.name = "odd_a", .P = 1, .Q = 5, .H = 1, .G = 1, .d = 2, .window = 3},
    {.name = "odd_b", .P = 3, .Q = 13, .H = 3, .G = 3, .d = 6, .window = 5, .fading = 3},
    {.name = "odd_c", .P = 2, .Q = 39, .H = 6, .G = 2, .d = 10, .window = 11, .eidetic = 9},
    {.name = "odd_d",
     .P = 5,
     .Q = 19,
     .H = 15,
     .G = 3,
     .d = 14,
     .window = 19,
     .fading = 5,
     .eidetic = 9},
    {.name = "odd_e", .P = 1, .Q = 71, .H = 7, .G = 1, .d = 3, .window = 999},
    {.name = "odd_f", .P = 2, .Q = 51, .H = 5, .G = 5, .d = 33, .window = 20, .eidetic = 51},
    {.name = "odd_g", .P = 3, .Q = 7, .H = 9, .G = 3, .d = 66, .window = 30, .fading = 9},
    {.name = "odd_h", .P = 1, .Q = 99, .H = 35, .G = 1, .d = 5, .window = 17, .eidetic = 3},
    {.name = "odd_blocks", .P = 2, .Q = 211, .H = 3, .G = 3, .d = 7, .window = 201, .eidetic = 9},
    {.name = "odd_gaps",
     .P = 3,
     .Q = 9,
     .H = 6,
     .G = 3,
     .d = 18,
     .window = 4,
     .eidetic = 5,
     .gaps = true,
     .strided = true},
    {.name = "odd_sliding",
     .P = 3,
     .Q = 13,
     .H = 3,
     .G = 1,
     .d = 6,
     .window = 5,
     .fading = 3,
     .eidetic = 1,
     .sliding = true},
    {.name = "odd_sliding_wide",
     .P = 5,
     .Q = 11,
     .H = 6,
     .G = 2,
     .d = 10,
     .window = 11,
     .fading = 19,
     .eidetic = 3,
     .sliding = true},
    {.name = "odd_sliding_gaps",
     .P = 3,
     .Q = 17,
     .H = 5,
     .G = 1,
     .d = 9,
     .window = 13,
     .fading = 6,
     .eidetic = 11,
     .sliding = true,
     .gaps = true,
     .strided = true},
    {.name = "odd_holes",
     .P = 3,
     .Q = 21,
     .H = 6,
     .G = 2,
     .d = 10,
     .window = 7,
     .fading = 3,
     .eidetic = 11,
     .holes = true},
    {.name = "odd_sliding_holes",
     .P = 2,
     .Q = 43,
     .H = 3,
     .G = 3,
     .d = 5,
     .window = 12,
     .fading = 5,
     .eidetic = 7,
     .sliding = true,
     .holes = true},
    {.name = "long", .P = 2, .Q = 200, .H = 2, .G = 1, .d = 16, .window = 200, .eidetic = 64},
    {.name = "bmojo_2k",
     .P = 4,
     .Q = 512,
     .H = 8,
     .G = 2,
     .d = 64,
     .window = 512,
     .fading = 16,
     .eidetic = 64,
     .timed = true},
    {.name = "window_2k", .P = 4, .Q = 512, .H = 8, .G = 2, .d = 64, .window = 512, .timed = true},
    {.name = "full_2k", .P = 1, .Q = 2048, .H = 8, .G = 2, .d = 64, .window = 4096, .timed = true},
};

// The timed cases have equal pieces, so that their visible pairs are those of a plain window.
int64_t queries(const Shape& s, int64_t piece) {
  return piece + 1 == s.P && s.P > 1 && !s.timed ? (s.Q + 1) / 2 : s.Q;
}
int64_t window_keys(const Shape& s) { return s.Q + std::min(s.window, s.P == 1 ? 1 : s.Q + 1) - 1; }
// As the layout has them: a sliding key stands w before the first query that sees it.
int64_t fading_keys(const Shape& s) {
  return s.sliding && s.fading > 0 ? s.fading + s.Q - 1 : s.fading;
}
int64_t num_keys(const Shape& s) { return s.eidetic + fading_keys(s) + window_keys(s); }
int64_t num_tokens(const Shape& s) {
  int64_t count = s.gaps ? s.P : 0;
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
  if (s.holes && (key < 0 ? j % 3 == 1 : own % 3 == 2)) return hole(s, p, j);
  if (p == 0 && own < 0 && !(s.P == 1 && key < 0)) return {};  // before the document
  if (j < s.eidetic) return {(j * 5) % s.Q, count};
  if (key >= 0) return {std::max<int64_t>(0, own), std::min(count, own + s.window)};
  if (!s.sliding) return {0, count};
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
    token += queries(s, i) + s.gaps;
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
  auto q = normal({num_tokens(s), s.H * s.d + (s.strided ? 5 : 0)}, s.scale, 1)
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
                     .timed = s.timed});
  }
  return cases;
}

}  // namespace bmojo::bench
