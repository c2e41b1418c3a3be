#include <torch/torch.h>

#include "bench/cases.h"
#include "bmojo/nn/ops/selective_scan.h"

namespace bmojo::bench {
namespace {

struct Shape {
  const char* name;
  int64_t B, L, E, N;
  bool documents = false;  // a new one about every 7 tokens
  bool ragged = false;     // rows of different lengths, one of them empty
  bool strided = false;    // x and z are halves of one tensor, B and C parts of another
  bool denormals = false;  // x is 0 in every second channel: there h fades through them
  double dt_shift = 0;     // added to dt: large means fast forgetting
  double a_scale = 1;      // times A
  double scale = 1;        // of x and h0
  bool timed = false;
};

const Shape kShapes[] = {
    {.name = "one_token", .B = 1, .L = 1, .E = 1, .N = 1},
    {.name = "one_step", .B = 3, .L = 1, .E = 24, .N = 16},
    {.name = "one_step_odd", .B = 3, .L = 1, .E = 13, .N = 5},
    {.name = "one_channel", .B = 2, .L = 19, .E = 1, .N = 16},
    {.name = "one_state", .B = 2, .L = 19, .E = 20, .N = 1},
    {.name = "block", .B = 1, .L = 32, .E = 16, .N = 16},
    {.name = "block_and_one", .B = 1, .L = 33, .E = 16, .N = 16},
    {.name = "group", .B = 1, .L = 40, .E = 64, .N = 16},
    {.name = "group_and_one", .B = 1, .L = 40, .E = 65, .N = 16},
    {.name = "groups", .B = 2, .L = 70, .E = 192, .N = 16},
    {.name = "odd_a", .B = 1, .L = 7, .E = 3, .N = 2},
    {.name = "odd_b", .B = 3, .L = 37, .E = 9, .N = 11},
    {.name = "odd_c", .B = 5, .L = 65, .E = 67, .N = 3},
    {.name = "odd_d", .B = 1, .L = 99, .E = 131, .N = 17},
    {.name = "odd_e", .B = 7, .L = 29, .E = 15, .N = 33},
    {.name = "odd_documents", .B = 3, .L = 45, .E = 19, .N = 7, .documents = true},
    {.name = "odd_ragged", .B = 5, .L = 43, .E = 21, .N = 9, .ragged = true},
    {.name = "odd_all",
     .B = 5,
     .L = 71,
     .E = 71,
     .N = 13,
     .documents = true,
     .ragged = true,
     .strided = true},
    {.name = "documents", .B = 2, .L = 64, .E = 32, .N = 16, .documents = true},
    {.name = "ragged", .B = 4, .L = 64, .E = 32, .N = 16, .ragged = true},
    {.name = "strided", .B = 3, .L = 24, .E = 40, .N = 16, .strided = true},
    {.name = "large_dt", .B = 2, .L = 48, .E = 16, .N = 8, .dt_shift = 25},
    {.name = "tiny_dt", .B = 2, .L = 48, .E = 16, .N = 8, .dt_shift = -30},
    {.name = "zero_dt", .B = 2, .L = 48, .E = 16, .N = 8, .dt_shift = -200},
    {.name = "a_near_zero", .B = 2, .L = 100, .E = 16, .N = 8, .a_scale = 1e-7},
    {.name = "a_very_negative", .B = 2, .L = 100, .E = 16, .N = 8, .a_scale = 1e5},
    {.name = "denormals", .B = 2, .L = 64, .E = 16, .N = 8, .denormals = true, .dt_shift = 5},
    {.name = "large_values", .B = 2, .L = 48, .E = 16, .N = 8, .scale = 1e15},
    {.name = "long", .B = 1, .L = 1000, .E = 24, .N = 16},
    {.name = "bmojo_2k", .B = 1, .L = 2048, .E = 512, .N = 16, .strided = true, .timed = true},
    {.name = "mamba_2k", .B = 1, .L = 2048, .E = 1024, .N = 16, .strided = true, .timed = true},
};

Tensors make(const Shape& s) {
  const auto [B, L, E, N] = std::tuple(s.B, s.L, s.E, s.N);
  auto xz = normal({B, L, 2 * E}, 1, 1), bc = normal({B, L, 2 * N}, 1, 2);
  auto x = xz.narrow(2, 0, E), z = xz.narrow(2, E, E);
  auto in = bc.narrow(2, 0, N), out = bc.narrow(2, N, N);
  if (!s.strided)
    for (auto* tensor : {&x, &z, &in, &out}) *tensor = tensor->contiguous();
  // Mamba's own rates: A = -1 … -N.
  const auto A = -at::arange(1, N + 1, at::kFloat).expand({E, N}) *
                 (1 + 0.1 * normal({E, N}, 1, 3).tanh()) * s.a_scale;
  if (s.scale != 1) x = x * s.scale;
  if (s.denormals) x = x * at::arange(E, at::kLong).remainder(2);
  return {x,
          normal({B, L, E}, 1, 4) + s.dt_shift,
          z,
          in,
          out,
          A,
          normal({E}, 1, 5),
          normal({E}, 1, 6) - 3,
          normal({B, E, N}, s.scale, 7)};
}

Tensors run(const Shape& s, const Tensors& in) {
  at::Tensor starts;
  if (s.documents) starts = at::arange(s.B * s.L, at::kLong).remainder(7).eq(3).view({s.B, s.L});
  const auto [y, h] = nn::selective_scan({.x = in[0],
                                          .dt = in[1],
                                          .z = in[2],
                                          .B = in[3],
                                          .C = in[4],
                                          .A = in[5],
                                          .D = in[6],
                                          .dt_bias = in[7],
                                          .h0 = in[8],
                                          .starts = starts,
                                          .lengths = row_lengths(s.B, s.L, s.ragged)});
  return {y, h};
}

}  // namespace

std::vector<Case> scan_cases() {
  std::vector<Case> cases;
  for (const auto& s : kShapes) {
    // A token of a channel. Forward, a state: exp(Δ A), the input Δ x B, the update and the
    // read-out; besides, Δ, D x and the gate. Backward, a state: exp(Δ A) again, then the gradients
    // of h, B, C, Δ x, Δ A, Δ and A; besides, Δ and the gate again and their slopes.
    const double tokens = static_cast<double>(s.B * s.L), E = static_cast<double>(s.E),
                 N = static_cast<double>(s.N);
    const double per_state = kExpFlops + 6, per_channel = kSoftplusFlops + kSiluFlops + 5;
    const double inputs = tokens * (3 * E + 2 * N) * 4;
    cases.push_back(
        {.kernel = "selective_scan",
         .name = s.name,
         .make = [s] { return make(s); },
         .run = [s](const Tensors& in) { return run(s, in); },
         .forward = {tokens * E * (per_state * N + per_channel), inputs + tokens * E * 4},
         .backward = {tokens * E * ((per_state + 9) * N + per_channel + 12),
                      2 * inputs + tokens * E * 4},
         .timed = s.timed});
  }
  return cases;
}

}  // namespace bmojo::bench
