#include "bmojo/realization/transfer_function.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "bmojo/realization/random.h"

namespace bmojo::realization {
namespace {

constexpr size_t kNumSteps = 300;
// Double, 300 steps; products of up to 8 factors z - a_i lose two or three digits.
constexpr double kTolerance = 1e-12;

Vector evenly(size_t count, double first, double last) {
  Vector out(count, first);
  for (size_t i = 1; i < count; ++i)
    out[i] = first + (last - first) * static_cast<double>(i) / static_cast<double>(count - 1);
  return out;
}

DiagonalSystem random_system(Vector poles, Random& random) {
  const size_t order = poles.size();
  return {.a = std::move(poles),
          .b = random.gaussians(order),
          .c = random.gaussians(order),
          .d = random.gaussian()};
}

double companion_error(const DiagonalSystem& system, View u) {
  return relative_error(outputs(transfer_function(system), u), outputs(system, u));
}

TEST(TransferFunction, PolynomialsOfKnownRoots) {
  EXPECT_EQ(from_roots(Vector{1, 2, 3}), (Polynomial{-6, 11, -6, 1}));
  EXPECT_EQ(evaluate({-6, 11, -6, 1}, 5), 24);
  std::vector<double> found;
  for (const auto& root : roots({-6, 11, -6, 1})) found.push_back(root.real());
  std::sort(found.begin(), found.end());
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(found[i], i + 1, 1e-13);  // a few roundings
  const auto pair = roots({1, 0, 1});
  EXPECT_NEAR(std::abs(pair[0].imag()), 1, 1e-15);
}

// A real polynomial has roots in conjugate pairs, also where they are badly conditioned. Rounding
// in double moves these by 0.2; the wider type rounds 2^11 times finer, and moves them by as much
// less.
TEST(TransferFunction, RootsComeInPairs) {
  const auto found = roots(from_roots(evenly(16, 0.9, 0.99)));
  for (const auto& z : found) {
    double nearest = 1;
    for (const auto& other : found) nearest = std::min(nearest, std::abs(other - std::conj(z)));
    EXPECT_LT(nearest, 1e-4);
  }
}

// Σ_i c_i b_i a_i^t, written out.
TEST(TransferFunction, TheImpulseResponseIsASumOfPowers) {
  const DiagonalSystem system{.a = {0.5, -0.25}, .b = {2, 3}, .c = {1, -1}, .d = 0.125};
  const Vector y = outputs(transfer_function(system), Vector{1, 0, 0, 0});
  const Vector wanted{2 - 3 + 0.125, 2 * 0.5 + 3 * 0.25, 2 * 0.25 - 3 * 0.0625,
                      2 * 0.125 + 3 * 0.015625};
  for (size_t t = 0; t < 4; ++t) EXPECT_NEAR(y[t], wanted[t], 1e-15);
}

TEST(TransferFunction, IsTheDiagonalSystemWithPolesWellApart) {
  Random random(1);
  const Vector u = random.gaussians(kNumSteps);
  for (size_t order = 1; order <= 8; ++order) {
    const auto system = random_system(evenly(order, -0.9, 0.9), random);
    EXPECT_LT(companion_error(system, u), kTolerance) << order;
  }
}

TEST(TransferFunction, AZeroCancelsAPoleThatIsNotDriven) {
  Random random(2);
  const Vector u = random.gaussians(kNumSteps);
  auto system = random_system(evenly(6, -0.8, 0.9), random);
  system.b[1] = 0;
  system.c[4] = 0;
  const auto whole = transfer_function(system);
  for (size_t i = 0; i < 6; ++i) {
    const double numerator = std::abs(evaluate(whole.numerator, system.a[i]));
    EXPECT_EQ(numerator < 1e-14, i == 1 || i == 4) << i << ' ' << numerator;
  }
  EXPECT_LT(companion_error(system, u), kTolerance);
  const auto smaller = without_cancellations(system);
  EXPECT_EQ(smaller.order(), 4u);
  const auto y = outputs(transfer_function(smaller), u);
  EXPECT_LT(relative_error(y, outputs(system, u)), kTolerance);
}

TEST(TransferFunction, RepeatedPolesAreOne) {
  Random random(3);
  const Vector u = random.gaussians(kNumSteps);
  const auto system = random_system({0.7, 0.7, -0.4, 0.7, 0.2}, random);
  EXPECT_LT(companion_error(system, u), kTolerance);
  const auto smaller = without_cancellations(system);
  EXPECT_EQ(smaller.order(), 3u);
  const auto y = outputs(transfer_function(smaller), u);
  EXPECT_LT(relative_error(y, outputs(system, u)), kTolerance);
}

// Not a goal but a warning: coefficients are a poor way to store poles that lie close together.
TEST(TransferFunction, LosesDigitsWithManyPolesNearOne) {
  Random random(4);
  Vector impulse(kNumSteps);
  impulse[0] = 1;
  const auto error = [&](size_t order) {
    return companion_error(random_system(evenly(order, 0.9, 0.99), random), impulse);
  };
  EXPECT_LT(error(2), kTolerance);
  EXPECT_GT(error(16), 1e-6);  // at least ten of the sixteen digits are gone
}

// a_i, b_i and c_i that follow the input.
VaryingSystem random_varying(size_t order, View u) {
  VaryingSystem out;
  for (double input : u) {
    DiagonalSystem now{.a = Vector(order), .b = Vector(order), .c = Vector(order), .d = 0.5};
    for (size_t i = 0; i < order; ++i) {
      const double rate = static_cast<double>(i + 1) / static_cast<double>(order);
      now.a[i] = std::exp(-rate * std::log1p(std::exp(input)));  // exp(Δ A), Δ = softplus(u)
      now.b[i] = std::cos(rate * input);
      now.c[i] = 1 + rate * std::sin(input);
    }
    out.push_back(now);
  }
  return out;
}

TEST(VaryingSystem, IsExactlyADirectSumOfOrderOne) {
  const Vector u = Random(5).gaussians(kNumSteps);
  for (size_t order : {1, 2, 5, 16}) {
    const auto systems = random_varying(order, u);
    EXPECT_EQ(direct_sum_outputs(systems, u), outputs(systems, u)) << order;  // to the bit
  }
}

TEST(VaryingSystem, IsNotOneSystemOfOrderTwo) {
  const Vector u = Random(5).gaussians(kNumSteps);
  const auto systems = random_varying(2, u);
  const Vector wanted = outputs(systems, u);
  EXPECT_GT(relative_error(instantaneous_companion_outputs(systems, u), wanted), 0.05);
  // Held still, the same function gives the same system.
  const VaryingSystem still(kNumSteps, systems[0]);
  const Vector y = instantaneous_companion_outputs(still, u);
  EXPECT_LT(relative_error(y, outputs(still, u)), kTolerance);
}

// By how much a mode p_t = a_1(u_t) p_{t-1} misses the recurrence of order 2:
//   p_t - (a_1 + a_2)_t p_{t-1} + (a_1 a_2)_t p_{t-2} = (a_2)_t ((a_1)_t - (a_1)_{t-1}) p_{t-2}
TEST(VaryingSystem, AModeMissesTheRecurrenceByTheChangeOfItsPole) {
  const Vector u = Random(6).gaussians(20);
  const auto systems = random_varying(2, u);
  double before = 1, last = systems[1].a[0];
  for (size_t t = 2; t < u.size(); ++t) {
    const auto& a = systems[t].a;
    const double now = a[0] * last;
    const double missed = now - (a[0] + a[1]) * last + a[0] * a[1] * before;
    EXPECT_NEAR(missed, a[1] * (a[0] - systems[t - 1].a[0]) * before, 1e-15);  // of sums below 2
    before = last;
    last = now;
  }
}

}  // namespace
}  // namespace bmojo::realization
