// What the scan promises beyond its table of cases (kernel_test): splits, steps, documents, long
// sequences and bad input.

#include "bmojo/nn/ops/selective_scan.h"

#include <gtest/gtest.h>

#include "bench/cases.h"
#include "bmojo/base/error.h"
#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

using test::relative_error, test::same_bits;

SelectiveScan random_scan(int64_t B, int64_t L, int64_t E, int64_t N, uint64_t seed = 0) {
  using bench::normal;
  return {.x = normal({B, L, E}, 1, seed + 1),
          .dt = normal({B, L, E}, 1, seed + 2),
          .z = normal({B, L, E}, 1, seed + 3),
          .B = normal({B, L, N}, 1, seed + 4),
          .C = normal({B, L, N}, 1, seed + 5),
          .A = -at::arange(1, N + 1, at::kFloat).expand({E, N}).contiguous(),
          .D = normal({E}, 1, seed + 6),
          .dt_bias = normal({E}, 1, seed + 7) - 3,
          .h0 = normal({B, E, N}, 1, seed + 8)};
}

// Tokens [from, from + count), starting at state h.
SelectiveScan part(SelectiveScan scan, int64_t from, int64_t count, const at::Tensor& h) {
  for (auto* x : {&scan.x, &scan.dt, &scan.z, &scan.B, &scan.C}) *x = x->narrow(1, from, count);
  if (scan.starts.defined()) scan.starts = scan.starts.narrow(1, from, count);
  scan.h0 = h;
  return scan;
}

TEST(SelectiveScan, EverySplitAndEveryStepGivesTheSameBits) {
  test::on_every_target([] {
    auto scan = random_scan(2, 75, 21, 7);
    scan.starts = at::arange(150, at::kLong).remainder(31).eq(9).view({2, 75});
    const auto whole = selective_scan(scan);
    for (int64_t split = 1; split < 75; ++split) {
      const auto a = selective_scan(part(scan, 0, split, scan.h0));
      const auto b = selective_scan(part(scan, split, 75 - split, a.h));
      EXPECT_TRUE(same_bits(at::cat({a.y, b.y}, 1), whole.y)) << split;
      EXPECT_TRUE(same_bits(b.h, whole.h)) << split;
    }
    auto h = scan.h0;
    for (int64_t t = 0; t < 75; ++t) {
      const auto step = selective_scan(part(scan, t, 1, h));
      EXPECT_TRUE(same_bits(step.y, whole.y.narrow(1, t, 1))) << t;
      h = step.h;
    }
    EXPECT_TRUE(same_bits(h, whole.h));
  });
}

TEST(SelectiveScan, ARowGivesTheSameBitsInAnyBatch) {
  const auto scan = random_scan(3, 40, 70, 5);
  const auto whole = selective_scan(scan);
  auto alone = scan;
  for (auto* x : {&alone.x, &alone.dt, &alone.z, &alone.B, &alone.C, &alone.h0})
    *x = x->narrow(0, 1, 1);
  EXPECT_TRUE(same_bits(selective_scan(alone).y, whole.y.narrow(0, 1, 1)));
}

TEST(SelectiveScan, NothingOfADocumentReachesTheNextNotEvenNaN) {
  auto scan = random_scan(1, 50, 9, 5);
  scan.starts = at::arange(50, at::kLong).eq(20).view({1, 50});
  const auto clean = selective_scan(scan);
  scan.x = scan.x.clone();
  scan.x.narrow(1, 10, 1).fill_(NAN);
  for (auto* x : {&scan.x, &scan.dt, &scan.A}) x->requires_grad_(true);
  const auto spoiled = selective_scan(scan);
  EXPECT_TRUE(spoiled.y.narrow(1, 10, 10).isnan().all().item<bool>());
  EXPECT_TRUE(same_bits(spoiled.y.narrow(1, 20, 30), clean.y.narrow(1, 20, 30)));
  EXPECT_TRUE(same_bits(spoiled.h, clean.h));
  spoiled.y.narrow(1, 20, 30).sum().backward();
  EXPECT_TRUE(scan.x.grad().narrow(1, 20, 30).isfinite().all().item<bool>());
}

TEST(SelectiveScan, StaysExactOverAHundredThousandTokens) {
  const int64_t L = 100'000;
  auto scan = random_scan(1, L, 8, 4);
  auto exact = scan;
  for (auto* x : {&exact.x, &exact.dt, &exact.z, &exact.B, &exact.C, &exact.A, &exact.D,
                  &exact.dt_bias, &exact.h0})
    *x = x->to(at::kDouble);
  const auto fast = selective_scan(scan), slow = selective_scan(exact);
  EXPECT_LE(relative_error(fast.y, slow.y), 2e-5);
  EXPECT_LE(relative_error(fast.h, slow.h), 2e-5);
  // Memory over the whole length: decays so near 1 that every rounding counts.
  scan.A = scan.A * 1e-6;
  exact.A = scan.A.to(at::kDouble);
  const auto fast_long = selective_scan(scan), slow_long = selective_scan(exact);
  EXPECT_LE(relative_error(fast_long.y, slow_long.y), 2e-5);
  EXPECT_LE(relative_error(fast_long.h, slow_long.h), 2e-5);
}

TEST(SelectiveScan, ReadsAnyStridesRight) {
  const auto scan = random_scan(3, 17, 10, 6);
  const auto expected = selective_scan(scan);
  auto other = scan;
  other.x = scan.x.transpose(0, 1).contiguous().transpose(0, 1);
  other.dt = scan.dt.transpose(1, 2).contiguous().transpose(1, 2);
  other.z = at::stack({scan.z, scan.z}, 3).select(3, 1);
  other.B = scan.B.narrow(1, 0, 1).expand({3, 17, 6});
  other.A = scan.A.t().contiguous().t();
  other.h0 = scan.h0.transpose(1, 2).contiguous().transpose(1, 2);
  auto dense = scan;
  dense.B = other.B.contiguous();
  EXPECT_TRUE(same_bits(selective_scan(other).y, selective_scan(dense).y));
  other.B = scan.B;
  EXPECT_TRUE(same_bits(selective_scan(other).y, expected.y));
}

TEST(SelectiveScan, NamesTheArgumentThatIsWrong) {
  const auto message = [](const std::function<void(SelectiveScan&)>& spoil) -> std::string {
    auto scan = random_scan(2, 16, 8, 4);
    spoil(scan);
    try {
      selective_scan(scan);
    } catch (const base::Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(message([](auto& s) { s.dt = s.dt.narrow(2, 0, 4); }),
            "selective_scan: dt must be [2, 16, 8], got [2, 16, 4]");
  EXPECT_EQ(message([](auto& s) { s.h0 = at::Tensor(); }),
            "selective_scan: h0 must be [2, 8, 4], got none");
  EXPECT_EQ(message([](auto& s) { s.C = s.C.to(at::kDouble); }),
            "selective_scan: C must be Float, got Double");
  EXPECT_EQ(message([](auto& s) { s.z = s.z.to(at::kMeta); }),
            "selective_scan: z must be on cpu, got meta");
  EXPECT_EQ(message([](auto& s) { s.A = s.A.abs() + 0.5; }).substr(0, 40),
            "selective_scan: A must be at most 0, got");
  EXPECT_EQ(message([](auto& s) { s.x = s.x[0]; }),
            "selective_scan: x must be [B, L, E], none of them 0, got [16, 8]");
  EXPECT_EQ(message([](auto& s) { s.lengths = {3, 17}; }),
            "selective_scan: lengths must be from 0 to 16, got 17");
  EXPECT_EQ(message([](auto& s) { s.lengths = {3}; }),
            "selective_scan: lengths must have 2 entries, got 1");
  EXPECT_EQ(message([](auto& s) { s.starts = at::zeros({2, 16}); }),
            "selective_scan: starts must be Bool, got Float");
  EXPECT_EQ(message([](auto& s) { s.starts = at::zeros({2, 15}, at::kBool); }),
            "selective_scan: starts must be [2, 16], got [2, 15]");
  EXPECT_EQ(message([](auto& s) { s.x = s.x.to(at::kLong); }),
            "selective_scan: x must hold floating-point numbers, got Long");
  EXPECT_EQ(message([](auto& s) { s.A = s.A[0]; }), "selective_scan: A must be [E, N], got [4]");
  EXPECT_EQ(message([](auto& s) { s.A = s.A.narrow(0, 0, 7); }),
            "selective_scan: A must be [8, 4], got [7, 4]");
  EXPECT_EQ(message([](auto& s) { s.A = s.A.to(at::kMeta); }),
            "selective_scan: A must be on cpu, got meta");
  // A state in half precision would fade by its rounding alone.
  EXPECT_EQ(message([](auto& s) {
              for (auto* x : {&s.A, &s.D, &s.dt_bias, &s.h0}) *x = x->to(at::kHalf);
            }),
            "selective_scan: A must be Float, got Half");
  EXPECT_EQ(message([](auto& s) {
              for (auto* x : {&s.x, &s.dt, &s.z, &s.B, &s.C}) *x = x->to(at::kBFloat16);
              s.A = -s.A;
            }).substr(0, 40),
            "selective_scan: A must be at most 0, got");
}

}  // namespace
}  // namespace bmojo::nn
