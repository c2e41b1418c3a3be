#include "bmojo/realization/load_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "bmojo/realization/random.h"

namespace bmojo::realization {
namespace {

constexpr size_t kChannels = 6, kStates = 16;

// Mamba's initial A: -1 … -N in each channel.
Matrix initial_a() {
  Matrix out(kChannels, kStates);
  for (size_t e = 0; e < kChannels; ++e)
    for (size_t n = 0; n < kStates; ++n) out(e, n) = -static_cast<double>(n + 1);
  return out;
}

Matrix zeros() { return Matrix(kChannels, kStates); }

std::vector<ScanStep> some_tokens(Random& random) {
  std::vector<ScanStep> out;
  for (int t = 0; t < 20; ++t) {
    const double dt = 0.1 * random.uniform();
    const Vector B = random.gaussians(kStates);
    out.push_back(mamba_step(initial_a(), dt, B, random.gaussians(kChannels)));
  }
  return out;
}

TEST(LoadState, ExtraStepsEqualPassingTheState) {
  Random random(1);
  const Matrix h0 = random.gaussians(kChannels, kStates);
  const auto tokens = some_tokens(random);
  auto steps = loading_steps(h0);
  EXPECT_EQ(steps.size(), kStates);
  EXPECT_EQ(scan(zeros(), steps).values, h0.values);
  steps.insert(steps.end(), tokens.begin(), tokens.end());
  EXPECT_EQ(scan(zeros(), steps).values, scan(h0, tokens).values);  // to the bit
}

// Decay 1 asks for Δ = 0, and then nothing enters.
TEST(LoadState, WithoutAStepSizeNothingEnters) {
  Random random(2);
  const Vector x = random.gaussians(kChannels), B(kStates, 1e6);
  const auto step = mamba_step(initial_a(), 0, B, x);
  EXPECT_EQ(scan(zeros(), {step}).values, zeros().values);
}

TEST(LoadState, MambasOwnStepsForgetWhileTheyLoad) {
  const Matrix h0 = Random(3).gaussians(kChannels, kStates), A = initial_a();
  double last = INFINITY;
  for (double dt : {0.1, 0.01, 0.001, 0.0001}) {
    const Matrix h = scan(zeros(), mamba_loading_steps(h0, A, dt));
    for (size_t e = 0; e < kChannels; ++e)
      for (size_t n = 0; n < kStates; ++n) {
        const double kept = std::exp(dt * A(e, n) * static_cast<double>(kStates - 1 - n));
        EXPECT_NEAR(h(e, n), kept * h0(e, n), 1e-13);  // 16 roundings of numbers below 4
      }
    const double error = relative_error(h.values, h0.values);
    EXPECT_GT(error, 1 - std::exp(-10 * dt));  // never 0, whatever Δ
    EXPECT_LT(error, last);
    last = error;
  }
}

TEST(LoadState, FreeInputsCouldMakeUpForIt) {
  const Matrix h0 = Random(4).gaussians(kChannels, kStates);
  const auto steps = compensated_loading_steps(h0, initial_a(), 0.1);
  // exp(6.4) and its inverse, rounded some 16 times.
  EXPECT_LT(relative_error(scan(zeros(), steps).values, h0.values), 1e-13);
}

}  // namespace
}  // namespace bmojo::realization
