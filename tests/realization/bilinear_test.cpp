#include "bmojo/realization/bilinear.h"

#include <gtest/gtest.h>

#include <cmath>

namespace bmojo::realization {
namespace {

TEST(Bilinear, OneStepByHand) {
  const Vector A{-1, -2}, B{3, 4}, h{0.5, -0.25};
  const Vector exact = mamba_state(A, 0.5, B, 2, h), bilinear = bilinear_state(A, 0.5, B, 2, h);
  EXPECT_DOUBLE_EQ(exact[0], std::exp(-0.5) * 0.5 + 3);
  EXPECT_DOUBLE_EQ(exact[1], std::exp(-1.0) * -0.25 + 4);
  EXPECT_EQ(bilinear, (Vector{0.5 + 0.5 * (-0.5 + 6), -0.25 + 0.5 * (0.5 + 8)}));
}

// Slope 2 for one step, since exp(Δ A) - 1 - Δ A ≈ (Δ A)² / 2; slope 1 at a fixed horizon, which
// takes 1 / δ such steps.
TEST(Bilinear, ErrorsShrinkWithTheirSlopes) {
  Vector step, one_step, at_horizon;
  for (const auto& error : bilinear_errors(2, 8, 14)) {
    step.push_back(error.step);
    one_step.push_back(error.one_step);
    at_horizon.push_back(error.at_horizon);
  }
  // The next term of the series is δ times smaller: below 1 % at these steps.
  EXPECT_NEAR(log_slope(step, one_step), 2, 0.02);
  EXPECT_NEAR(log_slope(step, at_horizon), 1, 0.02);
}

TEST(Bilinear, SlopeOfAPower) {
  const Vector x{1, 2, 4}, y{3, 24, 192};  // 3 x³
  EXPECT_NEAR(log_slope(x, y), 3, 1e-14);
}

}  // namespace
}  // namespace bmojo::realization
