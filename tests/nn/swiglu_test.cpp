// What SwiGLU promises beyond its table of cases (kernel_test): steps, strides, the ends of the
// range and bad input.

#include "bmojo/nn/ops/swiglu.h"

#include <c10/core/Allocator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>

#include "bench/cases.h"
#include "bmojo/base/error.h"
#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

using bench::normal;
using test::same_bits;

TEST(SwiGlu, EveryStepGivesTheSameBits) {
  test::on_every_target([] {
    const auto gate = normal({2, 75, 137}, 3, 1), up = normal({2, 75, 137}, 1, 2);
    const auto whole = swiglu(gate, up);
    for (int64_t t = 0; t < 75; ++t) {
      EXPECT_TRUE(
          same_bits(swiglu(gate.narrow(1, t, 1), up.narrow(1, t, 1)), whole.narrow(1, t, 1)));
      EXPECT_TRUE(same_bits(swiglu(gate.narrow(1, t, 75 - t), up.narrow(1, t, 75 - t)),
                            whole.narrow(1, t, 75 - t)));
    }
  });
}

TEST(SwiGlu, TakesAnyShapeAndStrides) {
  const auto gate = normal({4, 3, 5, 6}, 1, 1), up = normal({4, 3, 5, 6}, 1, 2);
  const auto expected = swiglu(gate, up);
  EXPECT_TRUE(same_bits(swiglu(gate[2][1][3], up[2][1][3]), expected[2][1][3]));
  EXPECT_TRUE(
      same_bits(swiglu(gate.transpose(0, 3), up.transpose(0, 3)), expected.transpose(0, 3)));
  const auto one = up.narrow(1, 0, 1).expand({4, 3, 5, 6});
  EXPECT_TRUE(same_bits(swiglu(gate, one), swiglu(gate, one.contiguous())));
  EXPECT_EQ(swiglu(gate.narrow(0, 0, 0), up.narrow(0, 0, 0)).numel(), 0);
}

TEST(SwiGlu, IsRightAtTheEndsOfTheRangeAndKeepsNaN) {
  const auto gate = torch::tensor({-1e30f, -200.f, -0.f, 200.f, 1e30f, NAN, INFINITY});
  const auto y = swiglu(gate, at::ones(7));
  EXPECT_TRUE(same_bits(y.narrow(0, 0, 5), torch::tensor({-0.f, -0.f, -0.f, 200.f, 1e30f})));
  EXPECT_TRUE(y[5].isnan().item<bool>());
  EXPECT_TRUE(y[6].isinf().item<bool>());
}

TEST(SwiGluLinear, IsTheProductThroughAMap) {
  for (const auto& [D, F] : {std::pair<int64_t, int64_t>(5, 7), {24, 40}, {1, 1}}) {
    auto gate = normal({3, 11, F}, 1, 1), up = normal({3, 11, F}, 1, 2), w = normal({D, F}, 1, 3);
    const auto grad = normal({3, 11, D}, 1, 4);
    for (auto* x : {&gate, &up, &w}) x->requires_grad_(true);
    const auto y = swiglu_linear(gate, up, w), expected = at::linear(swiglu(gate, up), w);
    EXPECT_TRUE(same_bits(y, expected));
    const auto actual = torch::autograd::grad({y}, {gate, up, w}, {grad});
    const auto wanted = torch::autograd::grad({expected}, {gate, up, w}, {grad});
    for (size_t i = 0; i < 3; ++i) EXPECT_LE(test::relative_error(actual[i], wanted[i]), 1e-6) << i;
    const auto frozen = swiglu_linear(gate, up, w.detach());
    EXPECT_TRUE(same_bits(torch::autograd::grad({frozen}, {gate}, {grad})[0], actual[0]));
  }
}

// The bytes of tensors, as they come and go.
struct Counted : c10::MemoryReportingInfoBase {
  int64_t bytes = 0;
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
    bytes += size;
  }
  bool memoryProfilingEnabled() const override { return true; }
};

TEST(SwiGluLinear, KeepsNothingButItsResult) {
  auto gate = normal({3, 50, 96}, 1, 1), up = normal({3, 50, 96}, 1, 2), w = normal({8, 96}, 1, 3);
  for (auto* x : {&gate, &up, &w}) x->requires_grad_(true);
  const auto counted = std::make_shared<Counted>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counted);
  const auto y = swiglu_linear(gate, up, w);
  EXPECT_EQ(counted->bytes, static_cast<int64_t>(y.nbytes()));
  const auto composed = at::linear(swiglu(gate, up), w);
  EXPECT_EQ(counted->bytes, static_cast<int64_t>(2 * y.nbytes() + gate.nbytes()));
}

TEST(SwiGlu, NamesTheArgumentThatIsWrong) {
  const auto thrown = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const base::Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  const auto message = [&](const at::Tensor& gate, const at::Tensor& up) {
    return thrown([&] { swiglu(gate, up); });
  };
  const auto x = normal({2, 5, 8}, 1, 1);
  EXPECT_EQ(message(x, x[0]), "swiglu: up must be [2, 5, 8], got [5, 8]");
  EXPECT_EQ(message(x, {}), "swiglu: up must be [2, 5, 8], got none");
  EXPECT_EQ(message(x, x.to(at::kDouble)), "swiglu: up must be Float, got Double");
  const auto mapped = [&](const at::Tensor& weight) {
    return thrown([&] { swiglu_linear(x, x, weight); });
  };
  EXPECT_EQ(mapped(x[0].t()), "swiglu_linear: weight must be [D, 8], got [8, 5]");
  EXPECT_EQ(mapped(x[0].to(at::kDouble)), "swiglu_linear: weight must be Float, got Double");
  EXPECT_EQ(message(x, x.to(at::kMeta)), "swiglu: up must be on cpu, got meta");
  EXPECT_EQ(message({}, x), "swiglu: gate must be [..., F], F not 0, got none");
}

}  // namespace
}  // namespace bmojo::nn
