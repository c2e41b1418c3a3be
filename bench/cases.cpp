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

at::Tensor positions(int64_t B, int64_t L, int64_t start, bool documents) {
  const auto row = at::arange(L, at::kLong) + start;
  return (documents ? row.remainder(7) : row).expand({B, L});
}

std::vector<int64_t> row_lengths(int64_t B, int64_t L, bool ragged) {
  std::vector<int64_t> lengths;
  for (int64_t b = 0; ragged && b < B; ++b) lengths.push_back(b == 1 ? 0 : L - (b * 11) % L);
  return lengths;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& table : {scan_cases(), memory_attention_cases(), linear_cross_entropy_cases(),
                            norm_cases(), swiglu_cases(), linears_cases(), causal_conv_cases(),
                            innovation_cases(), rotary_cases(), selection_cases()})
    cases.insert(cases.end(), table.begin(), table.end());
  return cases;
}

}  // namespace bmojo::bench
