#include <torch/torch.h>

#include "bench/cases.h"
#include "bmojo/nn/ops/causal_conv.h"

namespace bmojo::bench {
namespace {

struct Shape {
  const char* name;
  int64_t B, L, E, K;
  int64_t start = 100;     // the first token's position in its document
  bool bias = true;        //
  bool documents = false;  // a new one every 7 tokens
  bool ragged = false;     // rows of different lengths, one of them empty
  bool strided = false;    // x is half of a wider tensor
  bool denormals = false;  // in every second channel of x and tail
  double scale = 1;        // of x and tail
  bool timed = false;
};

const Shape kShapes[] = {
    {.name = "one_number", .B = 1, .L = 1, .E = 1, .K = 1},
    {.name = "one_tap", .B = 2, .L = 9, .E = 16, .K = 1},
    {.name = "two_taps", .B = 2, .L = 9, .E = 16, .K = 2},
    {.name = "many_taps", .B = 2, .L = 9, .E = 16, .K = 20},
    {.name = "one_step", .B = 3, .L = 1, .E = 24, .K = 4},
    {.name = "one_channel", .B = 2, .L = 19, .E = 1, .K = 4},
    {.name = "block", .B = 1, .L = 32, .E = 16, .K = 4},
    {.name = "block_and_one", .B = 1, .L = 33, .E = 16, .K = 4},
    {.name = "blocks", .B = 3, .L = 96, .E = 16, .K = 4},
    {.name = "group", .B = 1, .L = 40, .E = 64, .K = 4},
    {.name = "group_and_one", .B = 1, .L = 40, .E = 65, .K = 4},
    {.name = "groups", .B = 2, .L = 70, .E = 192, .K = 4},
    {.name = "no_bias", .B = 2, .L = 24, .E = 24, .K = 4, .bias = false},
    {.name = "first_call", .B = 2, .L = 24, .E = 24, .K = 4, .start = 0},
    {.name = "second_token", .B = 2, .L = 24, .E = 24, .K = 4, .start = 1},
    {.name = "documents", .B = 2, .L = 64, .E = 32, .K = 4, .documents = true},
    {.name = "ragged", .B = 4, .L = 64, .E = 32, .K = 4, .ragged = true},
    {.name = "shorter_than_tail", .B = 4, .L = 3, .E = 8, .K = 12, .ragged = true},
    {.name = "strided", .B = 3, .L = 24, .E = 40, .K = 4, .strided = true},
    {.name = "large_values", .B = 2, .L = 48, .E = 16, .K = 4, .scale = 1e4},
    {.name = "tiny_values", .B = 2, .L = 48, .E = 16, .K = 4, .scale = 1e-9},
    {.name = "denormals", .B = 2, .L = 48, .E = 16, .K = 4, .denormals = true},
    {.name = "long", .B = 1, .L = 1000, .E = 24, .K = 4},
    {.name = "odd_a", .B = 1, .L = 7, .E = 3, .K = 2},
    {.name = "odd_b", .B = 3, .L = 37, .E = 9, .K = 5},
    {.name = "odd_c", .B = 5, .L = 65, .E = 67, .K = 3},
    {.name = "odd_d", .B = 1, .L = 99, .E = 131, .K = 4},
    {.name = "odd_e", .B = 7, .L = 29, .E = 15, .K = 7},
    {.name = "odd_step", .B = 3, .L = 1, .E = 13, .K = 4},
    {.name = "odd_documents", .B = 3, .L = 45, .E = 19, .K = 4, .documents = true},
    {.name = "odd_ragged", .B = 5, .L = 43, .E = 21, .K = 6, .ragged = true},
    {.name = "odd_all",
     .B = 5,
     .L = 71,
     .E = 71,
     .K = 4,
     .start = 2,
     .bias = false,
     .documents = true,
     .ragged = true,
     .strided = true},
    {.name = "bmojo_2k", .B = 1, .L = 2048, .E = 512, .K = 4, .strided = true, .timed = true},
    {.name = "mamba_2k", .B = 1, .L = 2048, .E = 1024, .K = 4, .strided = true, .timed = true},
};

// x, weight, then the bias and the tail, where there are any.
Tensors make(const Shape& s) {
  auto x = normal({s.B, s.L, 2 * s.E}, s.scale, 1).narrow(2, 0, s.E);
  Tensors in = {s.strided ? x : x.contiguous(), normal({s.E, 1, s.K}, 0.5, 2)};
  if (s.bias) in.push_back(normal({s.E}, 1, 3));
  if (s.K > 1) in.push_back(normal({s.B, s.K - 1, s.E}, s.scale, 4));
  if (s.denormals)
    for (auto* tensor : {&in.front(), &in.back()}) *tensor = with_denormals(*tensor);
  return in;
}

Tensors run(const Shape& s, const Tensors& in) {
  const auto [y, tail] = nn::causal_conv1d_silu(
      {.x = in[0],
       .weight = in[1],
       .bias = s.bias ? in[2] : at::Tensor(),
       .tail = s.K > 1 ? in.back() : at::zeros({s.B, 0, s.E}, in[0].options()),
       .positions = positions(s.B, s.L, s.start, s.documents),
       .lengths = row_lengths(s.B, s.L, s.ragged)});
  return {y, tail};
}

}  // namespace

std::vector<Case> causal_conv_cases() {
  std::vector<Case> cases;
  for (const auto& s : kShapes) {
    const double n = static_cast<double>(s.B * s.L * s.E), K = static_cast<double>(s.K);
    // Backward: silu and its slope, then the gradients of x, of the taps and of the bias.
    cases.push_back({.kernel = "causal_conv1d_silu",
                     .name = s.name,
                     .make = [s] { return make(s); },
                     .run = [s](const Tensors& in) { return run(s, in); },
                     .forward = {n * (2 * K + kSiluFlops), 8 * n},
                     .backward = {n * (4 * K + kSiluFlops + 5), 12 * n},
                     .timed = s.timed});
  }
  return cases;
}

}  // namespace bmojo::bench
