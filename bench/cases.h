#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

// One table of named cases per kernel feeds the equality test, the gradient test and the benchmark.

namespace bmojo::bench {

using Tensors = std::vector<at::Tensor>;

// What a pass over the case has to do at least: operations, and bytes read or written once.
struct Work {
  double flops = 0, bytes = 0;
};

struct Case {
  std::string kernel, name;
  std::function<Tensors()> make;               // fp32 inputs, the same at every call
  std::function<Tensors(const Tensors&)> run;  // the kernel in fp32, its reference in double
  Work forward, backward;
  bool ordered = true;  // the same bits for every number of threads
  bool timed = false;   // the benchmark runs it; tests leave out what is large
};

std::vector<Case> linear_cross_entropy_cases();
std::vector<Case> memory_attention_cases();
std::vector<Case> scan_cases();
std::vector<Case> norm_cases();
std::vector<Case> swiglu_cases();
std::vector<Case> causal_conv_cases();
std::vector<Case> innovation_cases();
std::vector<Case> rotary_cases();

// Every case of every kernel.
std::vector<Case> all_cases();

// Numbers from N(0, scale²), by seed.
at::Tensor normal(at::IntArrayRef shape, double scale, uint64_t seed);

}  // namespace bmojo::bench
