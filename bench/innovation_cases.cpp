#include <torch/torch.h>

#include <cmath>

#include "bench/cases.h"
#include "bmojo/nn/ops/innovation.h"

namespace bmojo::bench {
namespace {

struct Shape {
  const char* name;
  int64_t B, L, D, k;
  int64_t start = 100;     // the first token's position in its document
  bool documents = false;  // a new one every 7 tokens
  bool ragged = false;     // rows of different lengths, one of them empty
  bool strided = false;    // y is half of a wider tensor
  bool denormals = false;  // in every second channel of y and tail
  double scale = 1;        // of y and tail
  double decay = 0.7;      // c_i ∝ decay^(i-1)
  bool timed = false;
};

const Shape kShapes[] = {
    {.name = "one_number", .B = 1, .L = 1, .D = 1, .k = 1},
    {.name = "one_tap", .B = 2, .L = 9, .D = 16, .k = 1},
    {.name = "two_taps", .B = 2, .L = 9, .D = 16, .k = 2},
    {.name = "many_taps", .B = 2, .L = 9, .D = 16, .k = 20},
    {.name = "mean", .B = 2, .L = 29, .D = 16, .k = 6, .decay = 1},
    {.name = "one_step", .B = 3, .L = 1, .D = 24, .k = 4},
    {.name = "one_channel", .B = 2, .L = 19, .D = 1, .k = 4},
    {.name = "chains", .B = 2, .L = 9, .D = 16, .k = 4},
    {.name = "chains_and_one", .B = 2, .L = 9, .D = 17, .k = 4},
    {.name = "chains_and_vector", .B = 2, .L = 9, .D = 24, .k = 4},
    {.name = "block", .B = 1, .L = 32, .D = 16, .k = 4},
    {.name = "block_and_one", .B = 1, .L = 33, .D = 16, .k = 4},
    {.name = "blocks", .B = 3, .L = 96, .D = 16, .k = 4},
    {.name = "group", .B = 1, .L = 40, .D = 64, .k = 4},
    {.name = "group_and_one", .B = 1, .L = 40, .D = 65, .k = 4},
    {.name = "groups", .B = 2, .L = 70, .D = 192, .k = 4},
    {.name = "first_call", .B = 2, .L = 24, .D = 24, .k = 4, .start = 0},
    {.name = "second_token", .B = 2, .L = 24, .D = 24, .k = 4, .start = 1},
    {.name = "documents", .B = 2, .L = 64, .D = 32, .k = 4, .documents = true},
    {.name = "ragged", .B = 4, .L = 64, .D = 32, .k = 4, .ragged = true},
    {.name = "shorter_than_tail", .B = 4, .L = 3, .D = 8, .k = 12, .ragged = true},
    {.name = "strided", .B = 3, .L = 24, .D = 40, .k = 4, .strided = true},
    {.name = "large_values", .B = 2, .L = 48, .D = 16, .k = 4, .scale = 1e15},
    {.name = "small_values", .B = 2, .L = 48, .D = 16, .k = 4, .scale = 1e-3},
    {.name = "denormals", .B = 2, .L = 48, .D = 16, .k = 4, .denormals = true},
    {.name = "long", .B = 1, .L = 1000, .D = 24, .k = 4},
    {.name = "odd_a", .B = 1, .L = 7, .D = 3, .k = 2},
    {.name = "odd_b", .B = 3, .L = 37, .D = 9, .k = 5},
    {.name = "odd_c", .B = 5, .L = 65, .D = 67, .k = 3},
    {.name = "odd_d", .B = 1, .L = 99, .D = 131, .k = 4},
    {.name = "odd_e", .B = 7, .L = 29, .D = 15, .k = 7},
    {.name = "odd_step", .B = 3, .L = 1, .D = 13, .k = 4},
    {.name = "odd_documents", .B = 3, .L = 45, .D = 19, .k = 4, .documents = true},
    {.name = "odd_ragged", .B = 5, .L = 43, .D = 21, .k = 6, .ragged = true},
    {.name = "odd_all",
     .B = 5,
     .L = 71,
     .D = 71,
     .k = 4,
     .start = 2,
     .documents = true,
     .ragged = true,
     .strided = true},
    {.name = "bmojo_2k", .B = 1, .L = 2048, .D = 512, .k = 4, .timed = true},
};

Tensors make(const Shape& s) {
  const auto y = normal({s.B, s.L, 2 * s.D}, s.scale, 1).narrow(2, 0, s.D);
  const auto tail = normal({s.B, s.k, s.D}, s.scale, 2);
  if (s.denormals) return {with_denormals(y), with_denormals(tail)};
  return {s.strided ? y : y.contiguous(), tail};
}

Tensors run(const Shape& s, const Tensors& in) {
  std::vector<double> c;
  for (int64_t i = 0; i < s.k; ++i) c.push_back(0.5 * std::pow(s.decay, i));
  const auto [epsilon, tail] =
      nn::innovation({.y = in[0],
                      .tail = in[1],
                      .positions = positions(s.B, s.L, s.start, s.documents),
                      .lengths = row_lengths(s.B, s.L, s.ragged),
                      .coefficients = c});
  return {epsilon, tail};
}

}  // namespace

std::vector<Case> innovation_cases() {
  std::vector<Case> cases;
  for (const auto& s : kShapes) {
    const double n = static_cast<double>(s.B * s.L * s.D), k = static_cast<double>(s.k);
    // Backward: each error's gradient, and what it is to the k outputs before.
    cases.push_back({.kernel = "innovation",
                     .name = s.name,
                     .make = [s] { return make(s); },
                     .run = [s](const Tensors& in) { return run(s, in); },
                     .forward = {n * (2 * k + 2), 4 * n},
                     .backward = {n * (2 * k + 2), 8 * n},
                     .timed = s.timed});
  }
  return cases;
}

}  // namespace bmojo::bench
