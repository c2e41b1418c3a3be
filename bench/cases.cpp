#include "bench/cases.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>

namespace bmojo::bench {

at::Tensor normal(at::IntArrayRef shape, double scale, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kFloat) * scale;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& table :
       {scan_cases(), memory_attention_cases(), linear_cross_entropy_cases(), norm_cases(),
        swiglu_cases(), causal_conv_cases(), innovation_cases(), rotary_cases()})
    cases.insert(cases.end(), table.begin(), table.end());
  return cases;
}

}  // namespace bmojo::bench
