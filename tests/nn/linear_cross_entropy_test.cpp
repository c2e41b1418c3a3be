// What the loss promises beyond its table of cases (kernel_test).

#include "bmojo/nn/ops/linear_cross_entropy.h"

#include <gtest/gtest.h>

#include <fstream>

#include "bench/cases.h"
#include "bmojo/base/error.h"
#include "bmojo/base/memory.h"
#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

using bench::normal;

TEST(LinearCrossEntropy, ComputesScoredPositionsOnly) {
  const auto weight = normal({11, 6}, 1, 1);
  auto hidden = normal({5, 6}, 1, 2);
  hidden[3].fill_(NAN);
  hidden.requires_grad_(true);
  const auto target = torch::tensor({1, 2, 3, static_cast<int>(kUnscored), 4}, torch::kLong);
  const auto loss = linear_cross_entropy(hidden, weight, target);
  EXPECT_TRUE(std::isfinite(loss.item<double>()));
  loss.backward();
  EXPECT_TRUE(hidden.grad()[3].eq(0).all().item<bool>());
  EXPECT_TRUE(hidden.grad().isfinite().all().item<bool>());
  const auto nothing = linear_cross_entropy(hidden, weight, at::full({5}, kUnscored, at::kLong));
  EXPECT_EQ(nothing.item<double>(), 0);
}

// The gradient is made in the forward pass; the backward pass scales it by what comes from above.
TEST(LinearCrossEntropy, ScalesByTheGradientFromAboveOnce) {
  const auto target = at::arange(7, at::kLong);
  const auto gradient = [&](double factor) {
    auto hidden = normal({7, 6}, 1, 2).requires_grad_(true);
    (linear_cross_entropy(hidden, normal({11, 6}, 1, 1), target) * factor).backward();
    return hidden.grad();
  };
  EXPECT_LE(test::relative_error(gradient(-2.5), -2.5 * gradient(1)), 1e-6);
  auto hidden = normal({7, 6}, 1, 2).requires_grad_(true);
  const auto loss = linear_cross_entropy(hidden, normal({11, 6}, 1, 1), target);
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_THROW(loss.backward(), base::Error);
}

TEST(LinearCrossEntropy, AScaleOfZeroHasAGradientOfZero) {
  auto hidden = normal({3, 4}, 1, 1).requires_grad_(true);
  const auto loss = linear_cross_entropy(hidden, normal({9, 4}, 1, 2), at::arange(3, at::kLong), 0);
  loss.backward();
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_TRUE(hidden.grad().eq(0).all().item<bool>());
}

TEST(LinearCrossEntropy, NotANumberStaysOne) {
  auto hidden = normal({3, 4}, 1, 1);
  hidden[1].fill_(NAN);
  const auto loss = linear_cross_entropy(hidden, normal({9, 4}, 1, 2), at::arange(3, at::kLong));
  EXPECT_TRUE(std::isnan(loss.item<double>()));
}

TEST(LinearCrossEntropy, TakesAnyStrides) {
  const auto gradients = [](bool strided) {
    auto hidden = normal({7, 6}, 1, 2), weight = normal({11, 6}, 1, 1);
    auto target = at::arange(7, at::kLong);
    if (strided) {
      hidden = hidden.t().contiguous().t();
      weight = at::cat({weight, weight}, 1).narrow(1, 6, 6);
      target = at::stack({target, target - 99}, 1).select(1, 0);
    }
    hidden.requires_grad_(true);
    weight.requires_grad_(true);
    const auto loss = linear_cross_entropy(hidden, weight, target);
    loss.backward();
    return std::vector<at::Tensor>{loss, hidden.grad(), weight.grad()};
  };
  const auto dense = gradients(false), strided = gradients(true);
  for (size_t i = 0; i < dense.size(); ++i)
    EXPECT_LE(test::relative_error(strided[i], dense[i]), 1e-6) << i;
}

// 512 MiB of logits, of which an eighth may exist at a time.
TEST(LinearCrossEntropy, NeverHoldsTheLogitsOfAll) {
  const int64_t T = 4096, V = 32768;
  auto hidden = normal({T, 4}, 1, 1).requires_grad_(true);
  auto weight = normal({V, 4}, 1, 2).requires_grad_(true);
  std::ofstream("/proc/self/clear_refs") << 5;  // VmHWM begins here
  const int64_t before = base::process_memory("VmRSS");
  linear_cross_entropy(hidden, weight, at::arange(T, at::kLong)).backward();
  const int64_t grown = base::process_memory("VmHWM") - before;
  EXPECT_LE(loss_buffer_bytes(V), 4 * T * V / 8);
  EXPECT_LE(grown, 2 * loss_buffer_bytes(V));
  EXPECT_GE(grown, loss_buffer_bytes(V) / 2);  // else nothing was measured
}

TEST(LinearCrossEntropy, NamesTheArgumentThatIsWrong) {
  const auto message = [](const at::Tensor& hidden, const at::Tensor& weight,
                          const at::Tensor& target) -> std::string {
    try {
      linear_cross_entropy(hidden, weight, target);
    } catch (const base::Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  const auto hidden = normal({3, 4}, 1, 1), weight = normal({9, 4}, 1, 2);
  const auto target = at::arange(3, at::kLong);
  EXPECT_EQ(message(hidden[0], weight, target),
            "linear_cross_entropy: hidden must be [T, D], got [4]");
  EXPECT_EQ(message(hidden, weight.t(), target),
            "linear_cross_entropy: weight must be [V, 4], got [4, 9]");
  EXPECT_EQ(message(hidden, weight, target.to(at::kInt)),
            "linear_cross_entropy: target must be Long, got Int");
  EXPECT_EQ(message(hidden, weight, target + 7),
            "linear_cross_entropy: target must be from 0 to 8, got 7 to 9");
  EXPECT_EQ(message(hidden, weight.to(at::kDouble), target),
            "linear_cross_entropy: weight must be Float, got Double");
  EXPECT_EQ(message(hidden, weight, target.to(at::kMeta)),
            "linear_cross_entropy: target must be on cpu, got meta");
  EXPECT_EQ(message(hidden, weight.to(at::kMeta), target),
            "linear_cross_entropy: weight must be on cpu, got meta");
}

}  // namespace
}  // namespace bmojo::nn
