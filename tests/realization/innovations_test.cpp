#include "bmojo/realization/innovations.h"

#include <gtest/gtest.h>

#include <cmath>

#include "bmojo/realization/random.h"
#include "bmojo/realization/whiteness.h"

namespace bmojo::realization {
namespace {

constexpr size_t kLength = 2000, kLags = 20;

// Quantiles as they stand in tables, with more digits.
TEST(Whiteness, ChiSquareOfTables) {
  EXPECT_NEAR(chi_square_survival(3.841458820694124, 1), 0.05, 1e-14);
  EXPECT_NEAR(chi_square_survival(18.307038053275146, 10), 0.05, 1e-14);
  EXPECT_NEAR(chi_square_survival(37.56623478662507, 20), 0.01, 1e-14);
  EXPECT_NEAR(chi_square_survival(10.850811394182585, 20), 0.95, 1e-14);
  EXPECT_EQ(chi_square_survival(0, 5), 1);
  // Two degrees: e^{-x/2}. One: erfc(√(x/2)). Far out the relative error counts.
  for (double x : {0.01, 1.0, 5.0, 40.0, 200.0}) {
    EXPECT_NEAR(chi_square_survival(x, 2) / std::exp(-x / 2), 1, 1e-13) << x;
    EXPECT_NEAR(chi_square_survival(x, 1) / std::erfc(std::sqrt(x / 2)), 1, 1e-13) << x;
  }
}

TEST(Whiteness, StatisticByHand) {
  // Mean 0, energy 4, Σ x_t x_{t-1} = -3, Σ x_t x_{t-2} = 2; n (n + 2) = 24.
  const auto result = ljung_box(Vector{1, -1, 1, -1}, 2);
  EXPECT_DOUBLE_EQ(result.statistic, 24 * (9.0 / 16 / 3 + 4.0 / 16 / 2));
  EXPECT_DOUBLE_EQ(result.p_value, std::exp(-result.statistic / 2));
  // The mean does not count.
  const Vector rho = autocorrelations(Vector{8, 6, 8, 6}, 2);
  EXPECT_DOUBLE_EQ(rho[0], -0.75);
  EXPECT_DOUBLE_EQ(rho[1], 0.5);
}

// At a level of 5 %, a white series is refused in 5 % of the draws.
template <class Residuals>
int num_refused(const Residuals& residuals) {
  int refused = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed)
    refused += ljung_box(residuals(seed), kLags).p_value < 0.05;
  return refused;
}

TEST(Innovations, OfTheOptimalPredictorAreWhite) {
  const auto system = damped_oscillator();
  const int refused = num_refused(
      [&](uint64_t seed) { return optimal_residuals(system, sample(system, kLength, seed)); });
  // Of 200, 10 are expected, with a standard deviation of 3.1: three of them to either side.
  EXPECT_GE(refused, 1);
  EXPECT_LE(refused, 19);
}

TEST(Innovations, HaveVarianceOne) {
  const auto system = damped_oscillator();
  const Vector residuals = optimal_residuals(system, sample(system, 100000, 1));
  EXPECT_NEAR(dot(residuals, residuals) / 1e5, 1, 0.023);  // five standard deviations, √(2 / n)
}

TEST(Innovations, OfATooShortPredictorAreNot) {
  const auto system = damped_oscillator();
  EXPECT_EQ(num_refused(
                [&](uint64_t seed) { return order_one_residuals(sample(system, kLength, seed)); }),
            200);
  const auto short_one = ljung_box(order_one_residuals(sample(system, kLength, 1)), kLags);
  EXPECT_LT(short_one.p_value, 1e-10);
  // Order 1 is enough where the system has order 1 and no noise in its output.
  GaussianSystem first{.A = diagonal(Vector{0.8}), .B = {1}, .C = {1}, .output_noise = 0};
  EXPECT_GT(ljung_box(order_one_residuals(sample(first, kLength, 1)), kLags).p_value, 0.01);
}

TEST(Innovations, OfARunningMeanAreNot) {
  const Vector y = sample(damped_oscillator(), kLength, 1);
  const Vector residuals = running_mean_residuals(y, 4);
  EXPECT_EQ(residuals.size(), kLength - 4);
  EXPECT_DOUBLE_EQ(residuals[0], y[4] - (y[0] + y[1] + y[2] + y[3]) / 4);
  EXPECT_LT(ljung_box(residuals, kLags).p_value, 1e-10);
}

}  // namespace
}  // namespace bmojo::realization
