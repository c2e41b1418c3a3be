#include <torch/torch.h>

#include "bench/cases.h"
#include "bmojo/nn/ops/linears.h"

namespace bmojo::bench {
namespace {

struct Shape {
  const char* name;
  int64_t B, L, I;
  std::vector<int64_t> O;  // of each map
  bool joined = false;     // the maps are one group
  bool strided = false;    // x is half of a wider tensor
  bool turned = false;     // weights are transposed in memory
  bool denormals = false;  // in every second channel of x
  double scale = 1;        // of x
  bool timed = false;
};

// A strip has 6 or 8 rows, a panel 16 or 32 columns, a block 512 of what is summed, a task 24 to
// 192 rows; the gradients exchange these roles.
const Shape kShapes[] = {
    {.name = "one_number", .B = 1, .L = 1, .I = 1, .O = {1}},
    {.name = "one_row", .B = 1, .L = 1, .I = 64, .O = {40}},
    {.name = "one_input", .B = 2, .L = 19, .I = 1, .O = {24}},
    {.name = "one_output", .B = 2, .L = 19, .I = 24, .O = {1}},
    {.name = "strips", .B = 1, .L = 24, .I = 24, .O = {48}},
    {.name = "strips_and_one", .B = 1, .L = 25, .I = 24, .O = {49}},
    {.name = "panel", .B = 2, .L = 16, .I = 32, .O = {32}},
    {.name = "panel_and_one", .B = 1, .L = 33, .I = 33, .O = {33}},
    {.name = "panels", .B = 1, .L = 48, .I = 64, .O = {640}},
    {.name = "block", .B = 1, .L = 512, .I = 24, .O = {16}},
    {.name = "block_and_one", .B = 1, .L = 513, .I = 24, .O = {16}},
    {.name = "blocks", .B = 3, .L = 700, .I = 16, .O = {24}},
    {.name = "deep", .B = 1, .L = 32, .I = 1300, .O = {24}},
    {.name = "tasks", .B = 2, .L = 600, .I = 8, .O = {8}},
    {.name = "slabs", .B = 1, .L = 1100, .I = 640, .O = {16}},
    {.name = "wide", .B = 1, .L = 4, .I = 16, .O = {4160}},
    {.name = "wide_and_deep", .B = 1, .L = 2, .I = 1100, .O = {4100}},
    {.name = "group", .B = 2, .L = 40, .I = 32, .O = {16, 24, 40}, .joined = true},
    {.name = "long_group", .B = 1, .L = 2100, .I = 16, .O = {16, 8}, .joined = true},
    {.name = "maps", .B = 2, .L = 40, .I = 32, .O = {16, 24, 40}},
    {.name = "strided", .B = 3, .L = 24, .I = 40, .O = {32}, .strided = true},
    {.name = "turned", .B = 1, .L = 72, .I = 40, .O = {56}, .turned = true},
    {.name = "large_values", .B = 2, .L = 48, .I = 16, .O = {16}, .scale = 1e15},
    {.name = "tiny_values", .B = 2, .L = 48, .I = 16, .O = {16}, .scale = 1e-15},
    {.name = "denormals", .B = 2, .L = 48, .I = 16, .O = {16}, .denormals = true},
    {.name = "odd_a", .B = 1, .L = 7, .I = 3, .O = {5}},
    {.name = "odd_b", .B = 3, .L = 1, .I = 13, .O = {11}},
    {.name = "odd_c", .B = 3, .L = 37, .I = 9, .O = {19}},
    {.name = "odd_d", .B = 5, .L = 65, .I = 67, .O = {31}},
    {.name = "odd_e", .B = 1, .L = 199, .I = 131, .O = {77}},
    {.name = "odd_f", .B = 1, .L = 1029, .I = 31, .O = {35}},
    {.name = "odd_deep", .B = 1, .L = 21, .I = 1027, .O = {43}},
    {.name = "odd_group", .B = 1, .L = 2051, .I = 13, .O = {3, 17, 1}, .joined = true},
    {.name = "odd_strided", .B = 5, .L = 21, .I = 19, .O = {37}, .strided = true},
    {.name = "odd_turned", .B = 1, .L = 61, .I = 45, .O = {29}, .turned = true},
    {.name = "gate_up_2k",
     .B = 1,
     .L = 2048,
     .I = 512,
     .O = {1440, 1440},
     .joined = true,
     .timed = true},
    {.name = "down_2k", .B = 1, .L = 2048, .I = 1440, .O = {512}, .timed = true},
};

// x, then the weights.
Tensors make(const Shape& s) {
  auto x = normal({s.B, s.L, 2 * s.I}, s.scale, 1).narrow(2, 0, s.I);
  if (!s.strided) x = x.contiguous();
  Tensors in = {s.denormals ? with_denormals(x) : x};
  for (const auto width : s.O) {
    const auto weight = normal({width, s.I}, 1, in.size() + 1);
    in.push_back(s.turned ? weight.t().contiguous().t() : weight);
  }
  return in;
}

Tensors run(const Shape& s, const Tensors& in) {
  std::vector<Tensors> groups;
  for (size_t i = 1; i < in.size(); ++i) {
    if (groups.empty() || !s.joined) groups.emplace_back();
    groups.back().push_back(in[i]);
  }
  return nn::linears(in[0], groups);
}

}  // namespace

std::vector<Case> linears_cases() {
  std::vector<Case> cases;
  for (const auto& s : kShapes) {
    const double rows = static_cast<double>(s.B * s.L), width = static_cast<double>(s.I);
    double out = 0;
    for (const auto o : s.O) out += static_cast<double>(o);
    const double bytes = 4 * (rows * width + width * out + rows * out),
                 flops = 2 * rows * width * out;
    // Backward: a product for x and one for the weights, which read the outputs' gradient once.
    cases.push_back({.kernel = "linears",
                     .name = s.name,
                     .make = [s] { return make(s); },
                     .run = [s](const Tensors& in) { return run(s, in); },
                     .forward = {flops, bytes},
                     .backward = {2 * flops, 2 * bytes - 4 * rows * out},
                     .timed = s.timed});
  }
  return cases;
}

}  // namespace bmojo::bench
