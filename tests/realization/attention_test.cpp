#include "bmojo/realization/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "bmojo/realization/random.h"

namespace bmojo::realization {
namespace {

constexpr size_t kNumTokens = 40, kWidth = 5, kWindow = 7;

Tokens random_tokens(uint64_t seed) {
  Random random(seed);
  return {.queries = random.gaussians(kNumTokens, kWidth),
          .keys = random.gaussians(kNumTokens, kWidth),
          .values = random.gaussians(kNumTokens, 3)};
}

// Σ over the last `window` tokens, written out.
Matrix windowed_attention(const Tokens& tokens, size_t window) {
  Matrix out(tokens.size(), tokens.values.columns);
  for (size_t t = 0; t < tokens.size(); ++t) {
    double sum = 0;
    for (size_t i = t + 1 > window ? t + 1 - window : 0; i <= t; ++i) {
      const double weight = std::exp(dot(tokens.queries.row(t), tokens.keys.row(i)));
      for (size_t j = 0; j < out.columns; ++j) out(t, j) += weight * tokens.values(i, j);
      sum += weight;
    }
    for (size_t j = 0; j < out.columns; ++j) out(t, j) /= sum;
  }
  return out;
}

TEST(Registers, ACompanionStepIsItsEquation) {
  Random random(3);
  Registers registers(4, 2);
  Matrix x(4, 2);
  for (int t = 0; t < 20; ++t) {
    const Vector a = random.gaussians(4), b = random.gaussians(2);
    registers.step(companion(a), b);
    Matrix next(4, 2);
    for (size_t j = 0; j < 2; ++j) {
      for (size_t i = 0; i < 3; ++i) next(i, j) = x(i + 1, j);
      for (size_t i = 0; i < 4; ++i) next(3, j) += a[i] * x(i, j);
      next(3, j) += b[j];
    }
    x = next;
    for (size_t i = 0; i < 4; ++i)
      EXPECT_EQ(Vector(registers[i].begin(), registers[i].end()),
                Vector(x.row(i).begin(), x.row(i).end()));
  }
}

TEST(Registers, AZeroLastRowIsNilpotent) {
  const Matrix shift = companion(Vector(kWindow));
  Matrix power = identity(kWindow);
  for (size_t n = 1; n <= kWindow; ++n) {
    EXPECT_NE(power.values, Matrix(kWindow, kWindow).values) << n - 1;
    power = power * shift;
  }
  EXPECT_EQ(power.values, Matrix(kWindow, kWindow).values);
}

TEST(Attention, RegistersAreAWindow) {
  const Tokens tokens = random_tokens(1);
  for (size_t window : {size_t{1}, kWindow, kNumTokens + 3}) {
    const Matrix wanted = windowed_attention(tokens, window);
    const Matrix got = windowed_attention_by_registers(tokens, window);
    // The same sums, but for the largest score that is taken off each exponent.
    EXPECT_LT(relative_error(got.values, wanted.values), 1e-14);
  }
}

TEST(Attention, IsDeadbeatAfterNSteps) {
  constexpr size_t kChanged = 10;
  const Tokens tokens = random_tokens(2);
  Tokens changed = tokens;
  for (size_t j = 0; j < kWidth; ++j) changed.keys(kChanged, j) += 1;
  for (size_t j = 0; j < 3; ++j) changed.values(kChanged, j) -= 1;
  const Matrix before = windowed_attention_by_registers(tokens, kWindow);
  const Matrix after = windowed_attention_by_registers(changed, kWindow);
  for (size_t t = 0; t < kNumTokens; ++t) {
    const bool sees = t >= kChanged && t < kChanged + kWindow;
    EXPECT_EQ(!std::ranges::equal(before.row(t), after.row(t)), sees) << t;  // to the bit
  }
}

TEST(Attention, ALastRowDependingOnTheInputReachesFurther) {
  const Tokens tokens = random_tokens(4);
  Tokens changed = tokens;
  changed.values(0, 0) += 1;
  const LastRow last_row = [&](size_t t) {
    return Vector(kWindow, 0.3 / (1 + std::exp(-tokens.keys(t, 0))));
  };
  const Matrix before = attention_by_registers(tokens, kWindow, last_row);
  const Matrix after = attention_by_registers(changed, kWindow, last_row);
  EXPECT_NE(before(kNumTokens - 1, 0), after(kNumTokens - 1, 0));
}

TEST(Attention, EmptyRegistersWouldTakePart) {
  const Tokens tokens = random_tokens(1);
  const Matrix wanted = windowed_attention(tokens, kWindow);
  const Matrix got = windowed_attention_with_empty_registers(tokens, kWindow);
  for (size_t t = 0; t < kNumTokens; ++t) {
    const double error = relative_error(got.row(t), wanted.row(t));
    if (t + 1 < kWindow) {
      EXPECT_GT(error, 1e-3) << t;
    } else {
      EXPECT_LT(error, 1e-14) << t;
    }
  }
}

}  // namespace
}  // namespace bmojo::realization
