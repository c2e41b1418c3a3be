#include "bench/cases.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

namespace bmojo::bench {

at::Tensor normal(at::IntArrayRef shape, double scale, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kFloat) * scale;
}

at::Tensor with_denormals(const at::Tensor& x) {
  const int64_t C = x.size(-1);
  const auto small = at::pow(10, at::linspace(-37, -46, C, at::kDouble));
  const auto scale =
      at::where(at::arange(C, at::kLong).remainder(2) == 1, small, at::ones_like(small));
  return (x.to(at::kDouble) * scale).to(at::kFloat);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& table :
       {scan_cases(), memory_attention_cases(), linear_cross_entropy_cases(), norm_cases(),
        swiglu_cases(), causal_conv_cases(), innovation_cases(), rotary_cases(), selection_cases()})
    cases.insert(cases.end(), table.begin(), table.end());
  return cases;
}

}  // namespace bmojo::bench
