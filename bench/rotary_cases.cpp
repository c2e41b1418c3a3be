#include <torch/torch.h>

#include "bench/cases.h"
#include "bmojo/nn/ops/rotary.h"

namespace bmojo::bench {
namespace {

struct Shape {
  const char* name;
  int64_t B, L, H, d;
  int64_t start = 0;      // the first token's position
  bool strided = false;   // x is part of a wider tensor
  double theta = 10'000;  //
  double scale = 1;       // of x
  bool timed = false;
};

const Shape kShapes[] = {
    {.name = "one_pair", .B = 1, .L = 1, .H = 1, .d = 2, .start = 3},
    {.name = "one_step", .B = 3, .L = 1, .H = 4, .d = 32, .start = 77},
    {.name = "one_head", .B = 2, .L = 19, .H = 1, .d = 32},
    {.name = "pairs", .B = 2, .L = 19, .H = 4, .d = 2},
    {.name = "half_vector", .B = 2, .L = 19, .H = 4, .d = 8},
    {.name = "vector", .B = 2, .L = 19, .H = 4, .d = 16},
    {.name = "vector_and_one", .B = 2, .L = 19, .H = 4, .d = 18},
    {.name = "two_vectors", .B = 2, .L = 19, .H = 4, .d = 32},
    {.name = "vectors", .B = 2, .L = 9, .H = 2, .d = 128},
    {.name = "task", .B = 1, .L = 128, .H = 4, .d = 32},
    {.name = "task_and_one", .B = 1, .L = 129, .H = 4, .d = 32},
    {.name = "tasks", .B = 3, .L = 100, .H = 8, .d = 32},
    {.name = "large_token", .B = 1, .L = 3, .H = 130, .d = 128},
    {.name = "long", .B = 1, .L = 2000, .H = 1, .d = 8},
    {.name = "far", .B = 2, .L = 19, .H = 4, .d = 32, .start = 1'000'000},
    {.name = "strided", .B = 3, .L = 24, .H = 4, .d = 32, .strided = true},
    {.name = "small_theta", .B = 2, .L = 19, .H = 4, .d = 32, .theta = 1},
    {.name = "large_theta", .B = 2, .L = 19, .H = 4, .d = 32, .theta = 1e6},
    {.name = "large_values", .B = 2, .L = 19, .H = 4, .d = 16, .scale = 1e15},
    {.name = "tiny_values", .B = 2, .L = 19, .H = 4, .d = 16, .scale = 1e-15},
    {.name = "odd_a", .B = 1, .L = 7, .H = 3, .d = 2},
    {.name = "odd_b", .B = 3, .L = 37, .H = 1, .d = 10},
    {.name = "odd_c", .B = 5, .L = 13, .H = 7, .d = 6},
    {.name = "odd_d", .B = 1, .L = 99, .H = 5, .d = 18},
    {.name = "odd_e", .B = 7, .L = 9, .H = 3, .d = 34},
    {.name = "odd_step", .B = 3, .L = 1, .H = 3, .d = 14, .start = 9},
    {.name = "odd_strided", .B = 3, .L = 11, .H = 3, .d = 22, .strided = true},
    {.name = "odd_far", .B = 3, .L = 11, .H = 5, .d = 26, .start = 99'999},
    {.name = "bmojo_2k", .B = 1, .L = 2048, .H = 8, .d = 64, .timed = true},
    {.name = "bmojo_keys_2k", .B = 1, .L = 2048, .H = 2, .d = 64, .timed = true},
};

Tensors make(const Shape& s) {
  if (!s.strided) return {normal({s.B, s.L, s.H, s.d}, s.scale, 1)};
  return {normal({s.B, s.L, 2 * s.H + 1, s.d}, s.scale, 1).narrow(2, 1, s.H)};
}

// Once a step, for all layers: not timed.
nn::Angles angles(const Shape& s, at::ScalarType type) {
  const auto position = (at::arange(s.B * s.L, at::kLong) + s.start).view({s.B, s.L});
  return nn::rotary_angles(position, s.d, s.theta, type);
}

}  // namespace

std::vector<Case> rotary_cases() {
  std::vector<Case> cases;
  for (const auto& s : kShapes) {
    const double n = static_cast<double>(s.B * s.L * s.H * s.d);
    cases.push_back({.kernel = "rotary",
                     .name = s.name,
                     .make = [s] { return make(s); },
                     .run = [fp32 = angles(s, at::kFloat),
                             fp64 = angles(s, at::kDouble)](const Tensors& in) -> Tensors {
                       return {nn::rotate(in[0], in[0].scalar_type() == at::kFloat ? fp32 : fp64)};
                     },
                     .forward = {3 * n, 8 * n},
                     .backward = {3 * n, 8 * n},
                     .timed = s.timed});
  }
  return cases;
}

}  // namespace bmojo::bench
