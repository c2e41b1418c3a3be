#include <torch/torch.h>

#include "bench/cases.h"
#include "bmojo/nn/ops/swiglu.h"

namespace bmojo::bench {
namespace {

struct Shape {
  const char* name;
  int64_t B, L, F;
  bool strided = false;    // gate and up are halves of one tensor
  bool denormals = false;  // in every second channel of gate
  double scale = 1;        // of gate
  double shift = 0;        // added to it
  bool timed = false;
};

const Shape kShapes[] = {
    {.name = "one_number", .B = 1, .L = 1, .F = 1},
    {.name = "one_row", .B = 1, .L = 1, .F = 64},
    {.name = "one_channel", .B = 2, .L = 19, .F = 1},
    {.name = "half_vector", .B = 2, .L = 5, .F = 4},
    {.name = "vector", .B = 2, .L = 5, .F = 8},
    {.name = "vector_and_one", .B = 2, .L = 5, .F = 9},
    {.name = "two_vectors", .B = 2, .L = 5, .F = 16},
    {.name = "task", .B = 1, .L = 64, .F = 128},
    {.name = "task_and_one", .B = 1, .L = 65, .F = 128},
    {.name = "tasks", .B = 3, .L = 64, .F = 200},
    {.name = "wide", .B = 1, .L = 2, .F = 9000},
    {.name = "long", .B = 1, .L = 2000, .F = 8},
    {.name = "strided", .B = 3, .L = 24, .F = 40, .strided = true},
    {.name = "open", .B = 2, .L = 9, .F = 16, .shift = 30},
    {.name = "closed", .B = 2, .L = 9, .F = 16, .shift = -30},
    {.name = "saturated", .B = 2, .L = 9, .F = 16, .scale = 1e4},
    {.name = "tiny_values", .B = 2, .L = 9, .F = 16, .scale = 1e-12},
    {.name = "denormals", .B = 2, .L = 9, .F = 16, .denormals = true},
    {.name = "odd_a", .B = 1, .L = 7, .F = 3},
    {.name = "odd_b", .B = 3, .L = 1, .F = 13},
    {.name = "odd_c", .B = 3, .L = 37, .F = 9},
    {.name = "odd_d", .B = 5, .L = 65, .F = 67},
    {.name = "odd_e", .B = 1, .L = 99, .F = 131},
    {.name = "odd_f", .B = 7, .L = 29, .F = 31},
    {.name = "odd_strided", .B = 5, .L = 21, .F = 19, .strided = true},
    {.name = "odd_wide", .B = 1, .L = 3, .F = 8203},
    {.name = "bmojo_2k", .B = 1, .L = 2048, .F = 1440, .timed = true},
    {.name = "transformer_2k", .B = 1, .L = 2048, .F = 1984, .timed = true},
};

Tensors make(const Shape& s) {
  const auto both = normal({s.B, s.L, 2 * s.F}, 1, 1);
  auto gate = both.narrow(2, 0, s.F), up = both.narrow(2, s.F, s.F);
  if (s.strided) return {gate, up};
  if (s.denormals) return {with_denormals(gate), up.contiguous()};
  return {gate * s.scale + s.shift, up.contiguous()};
}

}  // namespace

std::vector<Case> swiglu_cases() {
  std::vector<Case> cases;
  for (const auto& s : kShapes) {
    const double n = static_cast<double>(s.B * s.L * s.F);
    // With σ = 1 / (1 + exp(-g)): dg = (σ + silu(g) (1 - σ)) u dy, du = silu(g) dy.
    cases.push_back({.kernel = "swiglu",
                     .name = s.name,
                     .make = [s] { return make(s); },
                     .run = [](const Tensors& in) -> Tensors { return {nn::swiglu(in[0], in[1])}; },
                     .forward = {(kSiluFlops + 1) * n, 12 * n},
                     .backward = {(kSiluFlops + 6) * n, 20 * n},
                     .timed = s.timed});
    if (s.timed) continue;
    // As a model has it: through a weight [7, F].
    cases.push_back({.kernel = "swiglu_linear",
                     .name = s.name,
                     .make =
                         [s] {
                           auto in = make(s);
                           in.push_back(normal({7, s.F}, 1, 5));
                           return in;
                         },
                     .run = [](const Tensors& in) -> Tensors {
                       return {nn::swiglu_linear(in[0], in[1], in[2])};
                     },
                     .forward = {},
                     .backward = {}});
  }
  return cases;
}

}  // namespace bmojo::bench
