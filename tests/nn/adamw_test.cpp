#include "bmojo/nn/adamw.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "bench/cases.h"
#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

using bench::normal;

// torch's own optimiser with its own clipping, over ten steps and two groups.
TEST(AdamW, IsTorchsWithClipping) {
  for (const double max_norm : {0.0, 0.5, 1e6}) {
    std::vector<at::Tensor> ours, theirs;
    for (uint64_t i = 0; i < 3; ++i) {
      ours.push_back(normal({5, 7 + static_cast<int64_t>(i)}, 1, i).requires_grad_(true));
      theirs.push_back(ours.back().detach().clone().requires_grad_(true));
    }
    AdamW optimizer({{{ours[0]}, 1e-2, 0.1}, {{ours[1], ours[2]}, 3e-2, 0}});
    using Options = torch::optim::AdamWOptions;
    torch::optim::AdamW expected(
        {torch::optim::OptimizerParamGroup(
             {theirs[0]},
             std::make_unique<Options>(Options(1e-2).betas({0.9, 0.95}).weight_decay(0.1))),
         torch::optim::OptimizerParamGroup(
             {theirs[1], theirs[2]},
             std::make_unique<Options>(Options(3e-2).betas({0.9, 0.95}).weight_decay(0)))},
        Options(1e-2));
    for (uint64_t step = 0; step < 10; ++step) {
      for (uint64_t i = 0; i < 3; ++i) {
        if (i == 2 && step < 4) continue;  // joins late: its own steps count
        ours[i].mutable_grad() = normal(ours[i].sizes(), 1, 100 + 10 * step + i);
        theirs[i].mutable_grad() = ours[i].grad().clone();
      }
      double norm = 0;
      for (const auto& x : theirs)
        if (x.grad().defined()) norm += x.grad().square().sum().item<double>();
      if (max_norm > 0) torch::nn::utils::clip_grad_norm_(theirs, max_norm);
      EXPECT_NEAR(optimizer.step(max_norm), std::sqrt(norm), 1e-5);
      expected.step();
    }
    for (size_t i = 0; i < 3; ++i)
      EXPECT_LE(test::relative_error(ours[i], theirs[i]), 3e-6) << i << " clip " << max_norm;
  }
}

TEST(AdamW, AGradientThatIsNotFiniteNeverReachesTheWeights) {
  auto x = normal({4, 4}, 1, 1).requires_grad_(true);
  auto without = normal({4, 4}, 1, 2).requires_grad_(true);
  const auto before = x.detach().clone(), kept = without.detach().clone();
  AdamW optimizer({{{x, without}, 1e-2, 0.1}});
  x.mutable_grad() = at::full({4, 4}, NAN);
  EXPECT_FALSE(std::isfinite(optimizer.step(1)));
  EXPECT_TRUE(x.equal(before));
  EXPECT_EQ(optimizer.moments()[0].steps[0].item<double>(), 0);
  x.mutable_grad() = at::ones({4, 4});
  optimizer.step(1);
  EXPECT_FALSE(x.equal(before));
  EXPECT_TRUE(without.equal(kept));
}

}  // namespace
}  // namespace bmojo::nn
