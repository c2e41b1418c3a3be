// Every kernel over its table of cases (bench/): against its reference in double, its gradients
// against the reference's, and the same bits for every number of threads and instruction set. The
// reference's own gradients are checked by finite differences. The sizes that the benchmark times
// are a slow test of their own.

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>

#include "bench/cases.h"
#include "bmojo/base/error.h"
#include "bmojo/kernels/cpu.h"
#include "bmojo/nn/ops/product.h"
#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

using bench::Case, bench::Tensors;
using test::relative_error, test::same_bits;

Tensors as(const Tensors& inputs, at::ScalarType type) {
  Tensors out;
  for (const auto& x : inputs)
    out.push_back(x.is_floating_point() ? x.to(type).requires_grad_(true) : x);
  return out;
}

// A scalar in which each element of each output has its own weight; undefined where no output is a
// number that could have a gradient.
at::Tensor weighted_sum(const Tensors& outputs) {
  at::Tensor sum;
  for (const auto& out : outputs) {
    if (!out.is_floating_point()) continue;
    const auto weight = (at::arange(out.numel(), at::kDouble) * 0.7 + 0.3).sin().view(out.sizes());
    const auto part = (out * weight.to(out.scalar_type())).sum();
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

// Outputs, and the gradients of their weighted sum to the inputs that require one.
struct Result {
  Tensors outputs, gradients;
};

Result evaluate(const Case& c, const Tensors& inputs) {
  Tensors differentiable;
  for (const auto& x : inputs)
    if (x.requires_grad()) differentiable.push_back(x);
  Result result{c.run(inputs), Tensors(differentiable.size())};
  const auto loss = weighted_sum(result.outputs);
  if (loss.defined())
    result.gradients = torch::autograd::grad({loss}, differentiable, {}, /*retain_graph=*/false,
                                             /*create_graph=*/false, /*allow_unused=*/true);
  return result;
}

std::vector<Case> cases_where(const std::function<bool(const Case&)>& wanted) {
  auto cases = bench::all_cases();
  std::erase_if(cases, [&](const Case& c) { return !wanted(c); });
  return cases;
}
std::vector<Case> tested_cases() {
  return cases_where([](const Case& c) { return !c.timed; });
}

// Left out is what takes more than 2 GB in double: the scan's reference holds some eight tensors
// [L, E, N] at a time, 268 MB each at Mamba's width.
bool fits(const Case& c) { return c.kernel != "selective_scan" || c.name != "mamba_2k"; }
std::vector<Case> timed_cases() {
  return cases_where([](const Case& c) { return c.timed && fits(c); });
}
std::vector<Case> all_timed_cases() {
  return cases_where([](const Case& c) { return c.timed; });
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return info.param.kernel + "_" + info.param.name;
}

// Rounding in fp32 is 6e-8; a sum's order and an exp's polynomial make some tens of it.
void expect_reference(const Case& c) {
  const auto inputs = c.make();
  const auto fused = evaluate(c, as(inputs, at::kFloat));
  const auto exact = evaluate(c, as(inputs, at::kDouble));
  ASSERT_EQ(fused.outputs.size(), exact.outputs.size());
  for (size_t i = 0; i < fused.outputs.size(); ++i) {
    if (exact.outputs[i].is_floating_point()) {
      EXPECT_LE(relative_error(fused.outputs[i], exact.outputs[i]), 5e-6) << "output " << i;
    } else {
      EXPECT_TRUE(same_bits(fused.outputs[i], exact.outputs[i])) << "output " << i;
    }
  }
  for (size_t i = 0; i < fused.gradients.size(); ++i) {
    ASSERT_EQ(fused.gradients[i].defined(), exact.gradients[i].defined()) << "gradient " << i;
    if (!fused.gradients[i].defined()) continue;
    EXPECT_LE(relative_error(fused.gradients[i], exact.gradients[i]), 1e-4) << "gradient " << i;
  }
}

// Over our products: torch's own order may change with the threads.
void expect_same_bits(const Case& c) {
  const EveryProduct every;
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

class Kernel : public testing::TestWithParam<Case> {};
class TimedKernel : public testing::TestWithParam<Case> {};
class AllTimedKernel : public testing::TestWithParam<Case> {};

// Over torch's products, where there are any, and over ours of every size.
void expect_reference_over_both(const Case& c) {
  expect_reference(c);
  if (c.kernel.find("linear") == std::string::npos) return;
  const EveryProduct every;
  expect_reference(c);
}

TEST_P(Kernel, EqualsItsReferenceAndSoDoItsGradients) { expect_reference_over_both(GetParam()); }
TEST_P(TimedKernel, EqualsItsReferenceAndSoDoItsGradients) {
  expect_reference_over_both(GetParam());
}

TEST_P(Kernel, SameBitsForEveryThreadCountAndInstructionSet) { expect_same_bits(GetParam()); }
TEST_P(AllTimedKernel, SameBitsForEveryThreadCountAndInstructionSet) {
  expect_same_bits(GetParam());
}

// The i-th element in logical order, whatever the strides.
at::Tensor element(const at::Tensor& x, int64_t i) {
  int64_t offset = x.storage_offset();
  for (int64_t d = x.dim() - 1; d >= 0; --d) {
    offset += i % x.size(d) * x.stride(d);
    i /= x.size(d);
  }
  return x.as_strided({}, {}, offset);
}

// Central differences over four points: a few elements of each input, and all of them at once in a
// random direction of the same length. The scale is that of the inputs, not of their gradient: the
// error of a difference does not shrink with the slope.
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
    const auto loss = [&] { return weighted_sum(c.run(inputs)).item<double>(); };
    const double size = std::max(1e-3, value.abs().max().item<double>()), step = 1e-4 * size;
    const double bound = 1e-5 * std::max(1e-12, gradient.abs().max().item<double>()) +
                         1e-11 * std::abs(loss()) / step;
    // The slope of the loss where `part` of the input goes from what it is along `direction`.
    const auto slope = [&](const at::Tensor& part, const at::Tensor& direction) {
      const auto kept = part.clone();
      const auto at = [&](double change) {
        part.copy_(kept + change * direction);
        return loss();
      };
      const double difference = 8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step));
      part.copy_(kept);
      return difference / (12 * step);
    };
    for (int64_t k = 0; k < 3; ++k) {
      const int64_t i = (k * 7919 + 5) % value.numel();
      EXPECT_NEAR(element(gradient, i).item<double>(),
                  slope(element(value, i), at::ones({}, at::kDouble)), bound)
          << "input " << next - 1 << " element " << i;
    }
    auto direction = bench::normal(value.sizes(), 1, 11).to(at::kDouble);
    direction = direction / direction.norm();
    EXPECT_NEAR((gradient * direction).sum().item<double>(), slope(value, direction), bound)
        << "input " << next - 1 << ", all elements";
  }
}

INSTANTIATE_TEST_SUITE_P(Case, Kernel, testing::ValuesIn(tested_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Case, TimedKernel, testing::ValuesIn(timed_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Case, AllTimedKernel, testing::ValuesIn(all_timed_cases()), name_of);

// Each table has at least 25 cases that are tested, and 8 without a dimension that is a multiple
// of 8: of no input, nor of what is not an input, as lists of keys.
TEST(Cases, EnoughOfThem) {
  std::map<std::string, int> count, odd;
  for (const auto& c : tested_cases()) {
    ++count[c.kernel];
    odd[c.kernel] += c.name.starts_with("odd_");
    if (!c.name.starts_with("odd_")) continue;
    for (const auto& x : c.make())
      for (const auto size : x.sizes()) EXPECT_NE(size % 8, 0) << c.kernel << " " << c.name;
    for (const auto size : c.counts) EXPECT_NE(size % 8, 0) << c.kernel << " " << c.name;
  }
  for (const auto& [kernel, n] : count) {
    EXPECT_GE(n, 25) << kernel;
    EXPECT_GE(odd[kernel], 8) << kernel;
  }
}

// By the operation's name, not as a gradient that is missing.
TEST(Cases, ASecondDerivativeIsRefused) {
  std::map<std::string, Case> one_of;
  for (const auto& c : tested_cases()) one_of.emplace(c.kernel, c);
  for (const auto& [kernel, c] : one_of) {
    const auto inputs = as(c.make(), at::kFloat);
    const auto loss = weighted_sum(c.run(inputs));
    if (!loss.defined()) continue;  // a choice has not even a first one
    std::string message = "nothing was thrown";
    try {
      torch::autograd::backward({loss}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    } catch (const base::Error& error) {
      message = error.what();
    }
    const auto name = kernel == "rotary" ? "rotate" : kernel;
    EXPECT_EQ(message, name + ": has no second derivative; backward without create_graph");
  }
}

// Kernels count denormal numbers as 0, their references do not. They only show an error where
// normal numbers stand beside them and set the scale.
TEST(Cases, DenormalsStandBesideNormalNumbers) {
  constexpr double kSmallestNormal = std::numeric_limits<float>::min();
  int found = 0;
  for (const auto& c : tested_cases()) {
    if (c.name != "denormals") continue;
    ++found;
    auto tensors = as(c.make(), at::kDouble);
    const auto exact = evaluate(c, tensors);
    for (const auto* more : {&exact.outputs, &exact.gradients})
      tensors.insert(tensors.end(), more->begin(), more->end());
    int64_t denormal = 0;
    for (const auto& x : tensors) {
      ASSERT_TRUE(x.defined()) << c.kernel;
      const auto size = x.detach().abs();
      EXPECT_GT(size.max().item<double>(), 1e-6) << c.kernel;
      denormal += (size > 0).logical_and(size < kSmallestNormal).sum().item<int64_t>();
    }
    EXPECT_GT(denormal, 0) << c.kernel;
  }
  EXPECT_GE(found, 6);
}

}  // namespace
}  // namespace bmojo::nn
