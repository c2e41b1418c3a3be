#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

// One table of named cases per kernel feeds the equality test, the gradient test and the benchmark.

namespace bmojo::bench {

using Tensors = std::vector<at::Tensor>;

// What a pass over the case has to do at least: operations, and bytes read or written once. A fused
// product is two operations. A backward pass counts again the functions whose values it needs
// (to keep them would cost more than to compute them), but no sum of products a second time.
struct Work {
  double flops = 0, bytes = 0;
};

// Operations of one value. exp: a polynomial of degree 6, and two that reduce its argument.
inline constexpr double kExpFlops = 14;
// x · 1 / (1 + exp(-x)): an exp, a sign, a sum, a division and a product.
inline constexpr double kSiluFlops = kExpFlops + 4;
// ln(1 + exp(x)): an exp and a logarithm, whose series is as long.
inline constexpr double kSoftplusFlops = 2 * kExpFlops;

struct Case {
  std::string kernel, name;
  std::function<Tensors()> make;               // fp32 inputs, the same at every call
  std::function<Tensors(const Tensors&)> run;  // the kernel in fp32, its reference in double
  Work forward, backward;
  std::vector<int64_t> counts = {};  // dimensions that no input shows: pieces, queries, keys
  bool gradient_in_forward = false;  // made on the way; the backward pass hands it over
  bool timed = false;                // the benchmark runs it; only slow tests do
};

std::vector<Case> linear_cross_entropy_cases();
std::vector<Case> memory_attention_cases();
std::vector<Case> scan_cases();
std::vector<Case> norm_cases();
std::vector<Case> swiglu_cases();
std::vector<Case> linears_cases();
std::vector<Case> causal_conv_cases();
std::vector<Case> innovation_cases();
std::vector<Case> rotary_cases();
std::vector<Case> selection_cases();

// Every case of every kernel.
std::vector<Case> all_cases();

// Numbers from N(0, scale²), by seed.
at::Tensor normal(at::IntArrayRef shape, double scale, uint64_t seed);
// x [..., C] in fp32 with every second channel scaled down, by 10^-37 … 10^-46: from the smallest
// normal numbers through the denormal ones to 0.
at::Tensor with_denormals(const at::Tensor& x);
// Positions [B, L] in their documents: from `start` on, or of documents of 7 tokens.
at::Tensor positions(int64_t B, int64_t L, int64_t start, bool documents);
// Of B sequences of at most L tokens, the second one empty; nothing where they are not ragged.
std::vector<int64_t> row_lengths(int64_t B, int64_t L, bool ragged);

}  // namespace bmojo::bench
