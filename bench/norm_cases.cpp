#include <torch/torch.h>

#include "bench/cases.h"
#include "bmojo/nn/ops/norm.h"

namespace bmojo::bench {
namespace {

struct Shape {
  const char* name;
  int64_t B, L, D;
  bool strided = false;    // x and y are parts of a wider tensor
  bool denormals = false;  // in every second channel
  double scale = 1;        // of x and y
  double shift = 0;        // added to them
  double eps = 1e-5;
  bool timed = false;
};

const Shape kShapes[] = {
    // A single channel is norm ±1: only eps leaves it a gradient.
    {.name = "one_number", .B = 1, .L = 1, .D = 1, .eps = 0.1},
    {.name = "one_row", .B = 1, .L = 1, .D = 64},
    {.name = "one_channel", .B = 2, .L = 19, .D = 1, .eps = 0.1},
    {.name = "half_vector", .B = 2, .L = 5, .D = 4},
    {.name = "vector", .B = 2, .L = 5, .D = 8},
    {.name = "vector_and_one", .B = 2, .L = 5, .D = 9},
    {.name = "chains_less_one", .B = 2, .L = 5, .D = 15},
    {.name = "chains", .B = 2, .L = 5, .D = 16},
    {.name = "chains_and_one", .B = 2, .L = 5, .D = 17},
    {.name = "chains_and_vector", .B = 2, .L = 5, .D = 24},
    {.name = "block", .B = 1, .L = 64, .D = 32},
    {.name = "block_and_one", .B = 1, .L = 65, .D = 32},
    {.name = "blocks", .B = 3, .L = 64, .D = 48},
    {.name = "columns_and_one", .B = 1, .L = 3, .D = 257},
    {.name = "wide", .B = 1, .L = 2, .D = 3000},
    {.name = "long", .B = 1, .L = 2000, .D = 16},
    {.name = "strided", .B = 3, .L = 24, .D = 40, .strided = true},
    {.name = "denormals", .B = 2, .L = 9, .D = 16, .denormals = true},
    {.name = "tiny_values", .B = 2, .L = 9, .D = 16, .scale = 1e-12},
    {.name = "large_values", .B = 2, .L = 9, .D = 16, .scale = 1e15},
    {.name = "large_mean", .B = 2, .L = 9, .D = 64, .shift = 100},
    {.name = "large_eps", .B = 2, .L = 9, .D = 64, .eps = 1},
    {.name = "odd_a", .B = 1, .L = 7, .D = 3},
    {.name = "odd_b", .B = 3, .L = 1, .D = 13},
    {.name = "odd_c", .B = 3, .L = 37, .D = 9},
    {.name = "odd_d", .B = 5, .L = 65, .D = 67},
    {.name = "odd_e", .B = 1, .L = 99, .D = 131},
    {.name = "odd_f", .B = 7, .L = 29, .D = 31},
    {.name = "odd_strided", .B = 5, .L = 21, .D = 19, .strided = true},
    {.name = "odd_wide", .B = 1, .L = 5, .D = 1027},
    {.name = "bmojo_2k", .B = 1, .L = 2048, .D = 512, .timed = true},
};

at::Tensor part(const Shape& s, uint64_t seed) {
  if (s.strided) return normal({s.B, s.L, 2 * s.D + 1}, s.scale, seed).narrow(2, 1, s.D);
  const auto x = normal({s.B, s.L, s.D}, s.scale, seed) + s.shift * s.scale;
  return s.denormals ? with_denormals(x) : x;
}
at::Tensor gain(const Shape& s) { return 1 + 0.3 * normal({s.D}, 1, 3); }

}  // namespace

std::vector<Case> norm_cases() {
  std::vector<Case> cases;
  for (const auto& s : kShapes) {
    const double n = static_cast<double>(s.B * s.L * s.D);
    cases.push_back(
        {.kernel = "rms_norm",
         .name = s.name,
         .make = [s] { return Tensors{part(s, 1), gain(s)}; },
         .run = [s](const Tensors& in) -> Tensors { return {nn::rms_norm(in[0], in[1], s.eps)}; },
         .forward = {4 * n, 8 * n},
         .backward = {10 * n, 12 * n},
         .timed = s.timed});
    cases.push_back({.kernel = "add_rms_norm",
                     .name = s.name,
                     .make = [s] { return Tensors{part(s, 1), part(s, 2), gain(s)}; },
                     .run = [s](const Tensors& in) -> Tensors {
                       const auto [sum, norm] = nn::add_rms_norm(in[0], in[1], in[2], s.eps);
                       return {sum, norm};
                     },
                     .forward = {5 * n, 16 * n},
                     .backward = {11 * n, 16 * n},
                     .timed = s.timed});
  }
  return cases;
}

}  // namespace bmojo::bench
