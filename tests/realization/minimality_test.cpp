#include "bmojo/realization/minimality.h"

#include <gtest/gtest.h>

#include <cmath>

#include "bmojo/realization/oscillator.h"
#include "bmojo/realization/random.h"
#include "bmojo/realization/registers.h"
#include "bmojo/realization/strictly_causal.h"

namespace bmojo::realization {
namespace {

constexpr size_t kOrder = 6;
// Between the smallest singular value of these systems (above 1e-5) and rounding (1e-16).
constexpr double kTolerance = 1e-10;

Vector newest(size_t order) {
  Vector out(order);
  out.back() = 1;
  return out;
}

Ranks companion_ranks(const DiagonalSystem& system) {
  const auto whole = transfer_function(system);
  const Vector b = newest(system.order());
  return ranks(companion(whole.last_row()), b, whole.numerator, kTolerance);
}

TEST(Minimality, TheCompanionFormIsReachableWhateverItsLastRows) {
  Random random(1);
  for (int draw = 0; draw < 100; ++draw) {
    std::vector<Matrix> A;
    for (size_t t = 0; t < kOrder; ++t) {
      Vector row = random.gaussians(kOrder);
      for (double& x : row) x *= 0.5;
      A.push_back(companion(row));
    }
    const std::vector<Vector> B(kOrder, newest(kOrder));
    EXPECT_EQ(rank(reachability(A, B), kTolerance), kOrder);
    std::vector<Vector> C;
    for (size_t t = 0; t < kOrder; ++t) C.push_back(random.gaussians(kOrder));
    EXPECT_EQ(rank(observability(A, C), kTolerance), kOrder);
  }
}

// What reachability means: the input that its columns ask for leads to any wanted state.
TEST(Minimality, ColumnsAreTheStatesThatUnitInputsReach) {
  Random random(2);
  std::vector<Matrix> A;
  for (size_t t = 0; t < kOrder; ++t) A.push_back(companion(random.gaussians(kOrder)));
  const Matrix columns = reachability(A, std::vector<Vector>(kOrder, newest(kOrder)));
  for (size_t at = 0; at < kOrder; ++at) {
    Registers registers(kOrder, 1);
    for (size_t t = 0; t < kOrder; ++t) registers.step(A[t], Vector{t == at ? 1.0 : 0.0});
    for (size_t i = 0; i < kOrder; ++i)
      EXPECT_NEAR(registers[i][0], columns(i, kOrder - 1 - at), 1e-12);  // products of 5 matrices
  }
}

TEST(Minimality, ACancellationIsReachableButNotObservable) {
  DiagonalSystem system{.a = {0.9, -0.7, 0.5, 0.2, -0.3, 0.6},
                        .b = {1, 1, 1, 1, 1, 1},
                        .c = {1, 2, -1, 3, 1, -2},
                        .d = 0};
  const auto whole = companion_ranks(system);
  EXPECT_EQ(whole.reachable, kOrder);
  EXPECT_EQ(whole.observable, kOrder);
  system.c[2] = 0;
  const auto cancelled = companion_ranks(system);
  EXPECT_EQ(cancelled.reachable, kOrder);
  EXPECT_EQ(cancelled.observable, kOrder - 1);
}

TEST(Minimality, ADiagonalSystemWithEqualPolesIsNeither) {
  const Vector ones(3, 1);
  const auto apart = ranks(diagonal(Vector{0.9, 0.5, 0.2}), ones, ones, kTolerance);
  EXPECT_EQ(apart.reachable, 3u);
  EXPECT_EQ(apart.observable, 3u);
  const auto equal = ranks(diagonal(Vector{0.9, 0.5, 0.5}), ones, ones, kTolerance);
  EXPECT_EQ(equal.reachable, 2u);
  EXPECT_EQ(equal.observable, 2u);
}

TEST(Oscillator, SwingsWithoutEnd) {
  constexpr double kTheta = 0.3;
  Vector impulse(10000), wanted(10000);
  impulse[0] = 1;
  for (size_t t = 0; t < wanted.size(); ++t)
    wanted[t] = std::sin(kTheta * static_cast<double>(t)) / std::sin(kTheta);
  // Poles on the circle keep every rounding: 10,000 steps of 1e-16, added up over a period.
  EXPECT_LT(relative_error(outputs(oscillator(kTheta), impulse), wanted), 1e-9);
}

TEST(Oscillator, NoRealDiagonalSystemOfOrderTwoHasItsResponse) {
  for (double theta : {0.3, 1.0, 2.5}) {
    Vector impulse(65);
    impulse[0] = 1;
    const Vector y = outputs(oscillator(theta), impulse), behind(y.begin() + 1, y.end());
    const auto recurrence = recurrence_of(View(behind).first(4));
    EXPECT_NEAR(recurrence.discriminant(), -4 * std::pow(std::sin(theta), 2), 1e-12);
    EXPECT_LT(recurrence.discriminant(), 0);
    EXPECT_GT(best_real_diagonal_fit(behind), 0.5);
  }
  // The fit finds a system that there is.
  const DiagonalSystem real{.a = {0.9, -0.5}, .b = {1, 1}, .c = {1, 2}, .d = 0};
  Vector impulse(65);
  impulse[0] = 1;
  EXPECT_LT(best_real_diagonal_fit(outputs(real, impulse)), 1e-6);  // a root of a rounding
}

class StrictlyCausal : public testing::Test {
 protected:
  Random random_{7};
  const Vector u_ = random_.gaussians(200);
  const DiagonalSystem system_{.a = {0.9, -0.6, 0.3},
                               .b = random_.gaussians(3),
                               .c = random_.gaussians(3),
                               .d = random_.gaussian()};
};
constexpr double kRounding = 1e-14;  // the same products, grouped otherwise

TEST_F(StrictlyCausal, TimeInvariant) {
  const Vector y = outputs(system_, u_);
  EXPECT_LT(relative_error(strictly_causal_outputs(system_, u_), y), kRounding);
}

TEST_F(StrictlyCausal, InputVarying) {
  VaryingSystem systems;
  for (double u : u_) {
    auto now = system_;
    for (size_t i = 0; i < 3; ++i) {
      now.a[i] *= std::cos(u);
      now.b[i] += u;
      now.c[i] -= u * u;
    }
    systems.push_back(now);
  }
  EXPECT_LT(relative_error(strictly_causal_outputs(systems, u_), outputs(systems, u_)), kRounding);
}

// With u_{t-1} in place of u_t the impulse response skips a step.
TEST_F(StrictlyCausal, AsPrintedItComesAStepLate) {
  EXPECT_GT(relative_error(delayed_outputs(system_, u_), outputs(system_, u_)), 0.1);
  const Vector impulse{1, 0, 0, 0, 0};
  const Vector y = outputs(system_, impulse), late = delayed_outputs(system_, impulse);
  EXPECT_EQ(late[1], 0);
  for (size_t t = 1; t < 4; ++t) EXPECT_NEAR(late[t + 1], y[t], kRounding);
}

}  // namespace
}  // namespace bmojo::realization
