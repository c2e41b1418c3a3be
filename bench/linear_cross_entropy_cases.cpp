#include <torch/torch.h>

#include "bench/cases.h"
#include "bmojo/nn/ops/linear_cross_entropy.h"

namespace bmojo::bench {
namespace {

struct Shape {
  const char* name;
  int64_t T, D, V;
  int64_t unscored = 0;  // every so many tokens one is not scored; 1: none is
  double scale = 1;      // of the hidden states: large means sure logits
  bool timed = false;
};

const Shape kShapes[] = {
    {.name = "one", .T = 1, .D = 1, .V = 2},
    {.name = "one_token", .T = 1, .D = 32, .V = 64},
    {.name = "one_word", .T = 8, .D = 16, .V = 1},
    {.name = "two_words", .T = 8, .D = 16, .V = 2},
    {.name = "lanes", .T = 16, .D = 16, .V = 8},
    {.name = "lanes_and_one", .T = 16, .D = 16, .V = 9},
    {.name = "chains", .T = 16, .D = 16, .V = 16},
    {.name = "chains_and_one", .T = 16, .D = 16, .V = 17},
    {.name = "small", .T = 64, .D = 32, .V = 128},
    {.name = "wide", .T = 8, .D = 24, .V = 5000},
    {.name = "tall", .T = 900, .D = 8, .V = 48},
    {.name = "many_blocks", .T = 1100, .D = 4, .V = 9000},
    {.name = "some_unscored", .T = 64, .D = 32, .V = 96, .unscored = 3},
    {.name = "most_scored", .T = 64, .D = 32, .V = 96, .unscored = 30},
    {.name = "sure", .T = 32, .D = 16, .V = 64, .scale = 100},
    {.name = "unsure", .T = 32, .D = 16, .V = 64, .scale = 1e-20},
    {.name = "odd_a", .T = 3, .D = 5, .V = 7},
    {.name = "odd_b", .T = 17, .D = 3, .V = 131},
    {.name = "odd_c", .T = 33, .D = 65, .V = 1001},
    {.name = "odd_d", .T = 101, .D = 9, .V = 13, .unscored = 2},
    {.name = "odd_e", .T = 5, .D = 129, .V = 15},
    {.name = "odd_f", .T = 77, .D = 21, .V = 257, .unscored = 5},
    {.name = "odd_g", .T = 9, .D = 11, .V = 4099},
    {.name = "odd_h", .T = 63, .D = 31, .V = 31, .scale = 20},
    {.name = "odd_i", .T = 521, .D = 2, .V = 8001},
    {.name = "head_4k", .T = 2048, .D = 512, .V = 4096, .timed = true},
    {.name = "head_32k", .T = 1024, .D = 512, .V = 32'000, .timed = true},
};

Tensors make(const Shape& s) {
  return {normal({s.T, s.D}, s.scale, 1),
          normal({s.V, s.D}, 1 / std::sqrt(static_cast<double>(s.D)), 2)};
}

Tensors run(const Shape& s, const Tensors& in) {
  auto target = at::arange(s.T, at::kLong) * 7919 % s.V;
  if (s.unscored > 0)
    target = target.masked_fill(at::arange(s.T, at::kLong) % s.unscored == 0, nn::kUnscored);
  return {nn::linear_cross_entropy(in[0], in[1], target, 1 / static_cast<double>(s.T))};
}

}  // namespace

std::vector<Case> linear_cross_entropy_cases() {
  std::vector<Case> cases;
  for (const auto& s : kShapes) {
    const double product = 2 * static_cast<double>(s.T * s.D * s.V);
    const double tensors = static_cast<double>((s.T + s.V) * s.D * 4);
    // Products alone: X Wᵀ, then the gradients of both factors.
    cases.push_back({.kernel = "linear_cross_entropy",
                     .name = s.name,
                     .make = [s] { return make(s); },
                     .run = [s](const Tensors& in) { return run(s, in); },
                     .forward = {product, tensors},
                     .backward = {2 * product, 2 * tensors},
                     .gradient_in_forward = true,
                     .timed = s.timed});
  }
  return cases;
}

}  // namespace bmojo::bench
