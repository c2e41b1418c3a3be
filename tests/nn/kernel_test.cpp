// Every kernel over its table of cases (bench/): against its reference in double, its gradients
// against the reference's, and the same bits for every number of threads and instruction set. The
// reference's own gradients are checked by finite differences.

#include <gtest/gtest.h>

#include "bench/cases.h"
#include "bmojo/kernels/cpu.h"
#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

using bench::Case, bench::Tensors;
using test::relative_error;

Tensors as(const Tensors& inputs, at::ScalarType type) {
  Tensors out;
  for (const auto& x : inputs)
    out.push_back(x.is_floating_point() ? x.to(type).requires_grad_(true) : x);
  return out;
}

// Outputs, and the gradient of a scalar in which each element of each output has its own weight.
struct Result {
  Tensors outputs, gradients;
};

Result evaluate(const Case& c, const Tensors& inputs) {
  Result result;
  result.outputs = c.run(inputs);
  at::Tensor loss;
  for (const auto& out : result.outputs) {
    if (!out.is_floating_point()) continue;
    const auto weight = (at::arange(out.numel(), at::kDouble) * 0.7 + 0.3).sin().view(out.sizes());
    const auto part = (out * weight.to(out.scalar_type())).sum();
    loss = loss.defined() ? loss + part : part;
  }
  Tensors differentiable;
  for (const auto& x : inputs)
    if (x.requires_grad()) differentiable.push_back(x);
  result.gradients = torch::autograd::grad({loss}, differentiable, {}, /*retain_graph=*/false,
                                           /*create_graph=*/false, /*allow_unused=*/true);
  return result;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  const auto x = a.contiguous(), y = b.contiguous();
  return x.sizes() == y.sizes() && x.nbytes() == y.nbytes() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

class Kernel : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().timed) GTEST_SKIP() << "a case of the benchmark";
  }
};

TEST_P(Kernel, EqualsItsReferenceAndSoDoItsGradients) {
  const auto& c = GetParam();
  const auto inputs = c.make();
  const auto fused = evaluate(c, as(inputs, at::kFloat));
  const auto exact = evaluate(c, as(inputs, at::kDouble));
  ASSERT_EQ(fused.outputs.size(), exact.outputs.size());
  for (size_t i = 0; i < fused.outputs.size(); ++i)
    EXPECT_LE(relative_error(fused.outputs[i], exact.outputs[i]), 5e-6) << "output " << i;
  for (size_t i = 0; i < fused.gradients.size(); ++i) {
    ASSERT_EQ(fused.gradients[i].defined(), exact.gradients[i].defined()) << "gradient " << i;
    if (!fused.gradients[i].defined()) continue;
    EXPECT_LE(relative_error(fused.gradients[i], exact.gradients[i]), 1e-4) << "gradient " << i;
  }
}

TEST_P(Kernel, SameBitsForEveryThreadCountAndInstructionSet) {
  const auto& c = GetParam();
  if (!c.ordered) GTEST_SKIP() << "over torch's own products";
  const auto inputs = c.make();
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto alone = evaluate(c, as(inputs, at::kFloat));
  const auto expect_same = [&](const std::string& how) {
    const auto other = evaluate(c, as(inputs, at::kFloat));
    for (size_t i = 0; i < alone.outputs.size(); ++i)
      EXPECT_TRUE(same_bits(other.outputs[i], alone.outputs[i])) << how << ", output " << i;
    for (size_t i = 0; i < alone.gradients.size(); ++i)
      EXPECT_TRUE(same_bits(other.gradients[i], alone.gradients[i])) << how << ", gradient " << i;
  };
  at::set_num_threads(2);
  expect_same("2 threads");
  at::set_num_threads(threads);
  for (const auto& target : kernels::simd_targets()) {
    kernels::use_target(target);
    expect_same(target);
  }
  kernels::use_target("");
}

// Central differences over four points, a few elements of each input. The scale is that of the
// inputs, not of their gradient: the error of a difference does not shrink with the slope.
TEST_P(Kernel, ReferenceGradientsAreFiniteDifferences) {
  const auto& c = GetParam();
  auto inputs = as(c.make(), at::kDouble);
  const auto exact = evaluate(c, inputs);
  torch::NoGradGuard no_grad;
  size_t next = 0;
  for (auto& input : inputs) {
    if (!input.requires_grad()) continue;
    const auto gradient = exact.gradients[next++];
    if (!gradient.defined()) continue;
    auto value = input.detach();
    const double size = std::max(1e-3, value.abs().max().item<double>()), step = 1e-4 * size;
    const auto flat_gradient = gradient.reshape(-1);
    const double bound = 1e-5 * std::max(1e-12, gradient.abs().max().item<double>());
    for (int64_t k = 0; k < 3; ++k) {
      const int64_t i = (k * 7919 + 5) % value.numel();
      // The i-th element in logical order, whatever the strides.
      int64_t offset = value.storage_offset(), rest = i;
      for (int64_t d = value.dim() - 1; d >= 0; --d) {
        offset += rest % value.size(d) * value.stride(d);
        rest /= value.size(d);
      }
      auto element = value.as_strided({}, {}, offset);
      const double kept = element.item<double>();
      const auto at = [&](double change) {
        element.fill_(kept + change);
        double loss = 0;
        for (const auto& out : c.run(inputs)) {
          if (!out.is_floating_point()) continue;
          const auto weight =
              (at::arange(out.numel(), at::kDouble) * 0.7 + 0.3).sin().view(out.sizes());
          loss += (out * weight).sum().item<double>();
        }
        return loss;
      };
      const double base = std::abs(at(0));
      const double slope =
          (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step);
      element.fill_(kept);
      EXPECT_NEAR(flat_gradient[i].item<double>(), slope, bound + 1e-11 * base / step)
          << "input " << next - 1 << " element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Case, Kernel, testing::ValuesIn(bench::all_cases()), [](const auto& info) {
  return info.param.kernel + "_" + info.param.name;
});

// Each table has at least 25 cases, and 8 without a dimension that is a multiple of 8.
TEST(Cases, EnoughOfThem) {
  std::map<std::string, int> count, odd;
  for (const auto& c : bench::all_cases()) {
    ++count[c.kernel];
    odd[c.kernel] += c.name.starts_with("odd_");
    if (!c.name.starts_with("odd_")) continue;
    for (const auto& x : c.make())
      for (const auto size : x.sizes()) EXPECT_NE(size % 8, 0) << c.kernel << " " << c.name;
  }
  for (const auto& [kernel, n] : count) {
    EXPECT_GE(n, 25) << kernel;
    EXPECT_GE(odd[kernel], 8) << kernel;
  }
}

}  // namespace
}  // namespace bmojo::nn
