#include "bmojo/realization/linear_attention.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "bmojo/realization/random.h"

namespace bmojo::realization {
namespace {

constexpr size_t kNumTokens = 50, kOrder = 6;
constexpr double kTolerance = 1e-13;  // sums of 50 positive weights, in another order

Tokens random_tokens(uint64_t seed) {
  Random random(seed);
  return {.queries = random.gaussians(kNumTokens, 4),
          .keys = random.gaussians(kNumTokens, 4),
          .values = random.gaussians(kNumTokens, 3)};
}

// Σ_i φ(q_t)·φ(k_i) v_i over the last `window` tokens, written out.
Matrix written_out(const Tokens& tokens, size_t window) {
  Matrix out(tokens.size(), tokens.values.columns);
  for (size_t t = 0; t < tokens.size(); ++t)
    for (size_t i = t + 1 > window ? t + 1 - window : 0; i <= t; ++i) {
      const double weight = dot(feature(tokens.queries.row(t)), feature(tokens.keys.row(i)));
      for (size_t j = 0; j < out.columns; ++j) out(t, j) += weight * tokens.values(i, j);
    }
  return out;
}

TEST(LinearAttention, AShiftRegisterIsAWindow) {
  const Tokens tokens = random_tokens(1);
  const auto form = shift_register(kOrder);
  const auto y = linear_attention(tokens, form, Timing::kStepThenRead);
  EXPECT_LT(relative_error(y.values, written_out(tokens, kOrder).values), kTolerance);
  // Read before the step, the registers hold N earlier tokens, and the current one is added.
  const auto later = linear_attention(tokens, form, Timing::kReadThenAddCurrent);
  EXPECT_LT(relative_error(later.values, written_out(tokens, kOrder + 1).values), kTolerance);
}

TEST(LinearAttention, BothFactorisationsAreTheSumOverAllTokens) {
  const Tokens tokens = random_tokens(2);
  const Matrix wanted = written_out(tokens, kNumTokens);
  for (size_t order : {size_t{1}, kOrder, kNumTokens + 2})
    for (const auto& form : {newest_register_sums(order), oldest_register_sums(order)})
      for (Timing timing : {Timing::kStepThenRead, Timing::kReadThenAddCurrent}) {
        const auto y = linear_attention(tokens, form, timing);
        EXPECT_LT(relative_error(y.values, wanted.values), kTolerance) << order;
      }
}

TEST(LinearAttention, EveryTokenIsCountedOnce) {
  const Vector once(kNumTokens, 1);
  for (Timing timing : {Timing::kStepThenRead, Timing::kReadThenAddCurrent}) {
    EXPECT_EQ(counts(newest_register_sums(kOrder), timing, kNumTokens), once);
    EXPECT_EQ(counts(oldest_register_sums(kOrder), timing, kNumTokens), once);
  }
}

// Each of the N registers holds a sum, and all are added: token i is counted min(N, t - i) times.
TEST(LinearAttention, ThePrintedReadOutOverCounts) {
  const auto form = last_row_with_all_ones(kOrder);
  const Vector got = counts(form, Timing::kReadThenAddCurrent, kNumTokens);
  for (size_t i = 0; i < kNumTokens; ++i) {
    const size_t age = kNumTokens - 1 - i;
    EXPECT_EQ(got[i], age == 0 ? 1.0 : static_cast<double>(std::min(kOrder, age))) << i;
  }
  // Dividing by the denominator does not undo it: the recent tokens weigh too little.
  const Tokens tokens = random_tokens(3);
  const auto wanted =
      normalized_linear_attention(tokens, oldest_register_sums(kOrder), Timing::kStepThenRead);
  const auto printed = normalized_linear_attention(tokens, form, Timing::kReadThenAddCurrent);
  EXPECT_GT(relative_error(printed.values, wanted.values), 0.05);
}

}  // namespace
}  // namespace bmojo::realization
