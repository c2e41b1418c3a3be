#include <torch/torch.h>

#include "bench/cases.h"
#include "bmojo/nn/memory_attention.h"

namespace bmojo::bench {
namespace {

struct Shape {
  const char* name;
  int64_t P, Q;     // pieces of Q queries, the last one half as long
  int64_t H, G, d;  //
  int64_t window, fading = 0, eidetic = 0;
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
    {.name = "odd_c", .P = 2, .Q = 39, .H = 6, .G = 2, .d = 10, .window = 11, .eidetic = 7},
    {.name = "odd_d",
     .P = 5,
     .Q = 19,
     .H = 15,
     .G = 3,
     .d = 14,
     .window = 19,
     .fading = 5,
     .eidetic = 9},
    {.name = "odd_e", .P = 1, .Q = 71, .H = 7, .G = 1, .d = 3, .window = 1000},
    {.name = "odd_f", .P = 2, .Q = 51, .H = 5, .G = 5, .d = 33, .window = 20, .eidetic = 50},
    {.name = "odd_g", .P = 3, .Q = 7, .H = 9, .G = 3, .d = 66, .window = 30, .fading = 9},
    {.name = "odd_h", .P = 1, .Q = 99, .H = 35, .G = 1, .d = 5, .window = 17, .eidetic = 3},
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
int64_t num_keys(const Shape& s) { return s.eidetic + s.fading + window_keys(s); }
int64_t num_tokens(const Shape& s) {
  int64_t count = s.gaps ? s.P : 0;
  for (int64_t i = 0; i < s.P; ++i) count += queries(s, i);
  return count;
}

struct Lists {
  nn::QueryRuns runs;
  nn::KeyList keys;
};

Lists lists(const Shape& s, int64_t num_rows) {
  const int64_t S = num_keys(s), W = window_keys(s);
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
      const int64_t memory = s.eidetic + s.fading, key = j - memory;
      // Rows are shared between pieces and memories, as a token is window first and eidetic later.
      i[p][j] = 1 + (key >= 0 ? p * s.Q + key : p * 7 + j * 3) % (num_rows - 1);
      if (p == 0 && key < W - s.Q && !(s.P == 1 && key < 0)) continue;  // before the document
      const int64_t own = key - (W - s.Q);  // the query that stands where this window key does
      f[p][j] = j < s.eidetic ? (j * 5) % s.Q : key < 0 ? 0 : std::max<int64_t>(0, own);
      u[p][j] = key < 0 ? queries(s, p) : std::min(queries(s, p), own + s.window);
    }
  return {nn::QueryRuns(runs, num_tokens(s), at::kCPU), {index, from, until}};
}

double visible_pairs(const nn::KeyList& keys) {
  return (keys.until - keys.from).clamp_min(0).sum().item<double>();
}

Tensors make(const Shape& s) {
  const int64_t T = num_tokens(s), R = s.P * s.Q + s.window % 97 + s.eidetic + 3;
  auto q = normal({T, s.H * s.d + (s.strided ? 5 : 0)}, s.scale, 1)
               .narrow(1, 0, s.H * s.d)
               .unflatten(1, {s.H, s.d});
  const int64_t rows = R % 8 == 0 ? R + 1 : R;
  Tensors in = {q, normal({rows, 2, s.G, s.d}, 1, 2)};
  if (s.eidetic > 0) in.push_back(normal({s.P, s.eidetic}, 1, 3));
  return in;
}

Tensors run(const Shape& s, const Tensors& in) {
  const auto [runs, keys] = lists(s, in[1].size(0));
  return {nn::memory_attention({.q = in[0],
                                .pool = in[1],
                                .bias = in.size() > 2 ? in[2] : at::Tensor(),
                                .runs = runs,
                                .keys = keys})};
}

}  // namespace

std::vector<Case> memory_attention_cases() {
  std::vector<Case> cases;
  for (const auto& s : kShapes) {
    const auto tensors = static_cast<double>(num_tokens(s) * s.H * s.d * 4);
    const double rows = static_cast<double>(s.P * num_keys(s) * 2 * s.G * s.d * 4);
    const double pairs =
        s.timed ? visible_pairs(lists(s, 2 + s.P * s.Q).keys) * static_cast<double>(s.H * s.d) : 0;
    cases.push_back({.kernel = "memory_attention",
                     .name = s.name,
                     .make = [s] { return make(s); },
                     .run = [s](const Tensors& in) { return run(s, in); },
                     .forward = {4 * pairs, 2 * tensors + rows},
                     .backward = {10 * pairs, 4 * tensors + 2 * rows},
                     .timed = s.timed});
  }
  return cases;
}

}  // namespace bmojo::bench
