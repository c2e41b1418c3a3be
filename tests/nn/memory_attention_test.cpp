// What memory attention promises beyond its table of cases (kernel_test): any cut of the queries,
// rows read where they lie, values that are not numbers, and bad input.

#include "bmojo/nn/ops/memory_attention.h"

#include <gtest/gtest.h>

#include "bench/cases.h"
#include "bmojo/base/error.h"
#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

using bench::normal;
using test::same_bits;

// A window of w keys over L tokens of one sequence, with m more keys in front, in pieces that start
// at the given tokens.
struct Problem {
  at::Tensor q, pool, bias;
  QueryRuns runs;
  KeyList keys;
  at::Tensor result() const { return memory_attention({q, pool, bias, runs, keys}); }
};

Problem window_problem(const std::vector<int64_t>& starts, int64_t L = 60, int64_t w = 20,
                       int64_t m = 7) {
  const int64_t H = 6, G = 2, d = 10, P = std::ssize(starts), S = m + L;
  Problem out{.q = normal({L, H, d}, 1, 1),
              .pool = normal({1 + m + L, 2, G, d}, 1, 2),
              .bias = normal({1, m}, 1, 3).expand({P, m}),
              .runs = {},
              .keys = {}};
  std::vector<QueryRuns::Run> runs;
  auto from = at::zeros({P, S}, at::kLong), until = at::zeros({P, S}, at::kLong);
  for (int64_t p = 0; p < P; ++p) {
    const int64_t end = p + 1 < P ? starts[p + 1] : L, count = end - starts[p];
    runs.push_back({starts[p], count});
    for (int64_t j = 0; j < S; ++j) {
      // The front keys come into sight one after the other; the window moves.
      const int64_t first = j < m ? 5 * j : j - m, last = j < m ? L : j - m + w;
      from[p][j] = std::max<int64_t>(0, first - starts[p]);
      until[p][j] = std::min(count, last - starts[p]);
    }
  }
  out.runs = QueryRuns(runs, L, at::kCPU);
  out.keys = {at::arange(1, S + 1, at::kLong).expand({P, S}), from, until};
  return out;
}

void expect_same_bits_for_every_cut(int64_t L, int64_t w, int64_t stride) {
  const auto whole = window_problem({0}, L, w).result();
  for (int64_t split = 1; split < L; split += stride)
    EXPECT_TRUE(same_bits(window_problem({0, split}, L, w).result(), whole)) << split;
  std::vector<int64_t> steps(L);
  std::iota(steps.begin(), steps.end(), 0);
  EXPECT_TRUE(same_bits(window_problem(steps, L, w).result(), whole));
}

TEST(MemoryAttention, EveryCutOfTheQueriesGivesTheSameBits) {
  test::on_every_target([] { expect_same_bits_for_every_cut(60, 20, 1); });
}

// More keys than the kernel takes at a time: where its blocks end depends on the cut.
TEST(MemoryAttention, BlocksOfKeysDoNotShowInTheBits) {
  test::on_every_target([] { expect_same_bits_for_every_cut(300, 210, 13); });
}

// One key too many in the list, seen by no one, changes no bit either: a call's layout may differ.
TEST(MemoryAttention, KeysOutOfSightLeaveNoTrace) {
  auto problem = window_problem({0, 17});
  const auto expected = problem.result();
  const auto pad = [](const at::Tensor& x) { return at::constant_pad_nd(x, {0, 3}); };
  problem.keys = {pad(problem.keys.index), pad(problem.keys.from), pad(problem.keys.until)};
  EXPECT_TRUE(same_bits(problem.result(), expected));
}

TEST(MemoryAttention, OnlyQueriesThatSeeANaNOrInfinityAreSpoiled) {
  auto problem = window_problem({0});
  // Of both signs: no product with a key of infinities is -∞, whose weight of 0 would be right.
  problem.q.select(-1, 0).fill_(1);
  problem.q.select(-1, 1).fill_(-1);
  const auto clean = problem.result();
  const int64_t T = clean.size(0);
  for (const float value : {NAN, INFINITY})
    for (const int64_t token : {30, 55})   // 55: in the last tile, which is not full
      for (const int64_t part : {0, 1}) {  // a key, a value
        auto spoiled = problem;
        spoiled.pool = problem.pool.clone();
        spoiled.pool[1 + 7 + token][part].fill_(value);  // seen by 20 queries, itself the first
        const auto result = spoiled.result();
        const int64_t end = std::min(token + 20, T);
        EXPECT_TRUE(same_bits(result.narrow(0, 0, token), clean.narrow(0, 0, token)))
            << value << " " << token << " " << part;
        EXPECT_FALSE(result.narrow(0, token, end - token).isfinite().any().item<bool>())
            << value << " " << token << " " << part;
        EXPECT_TRUE(same_bits(result.narrow(0, end, T - end), clean.narrow(0, end, T - end)))
            << value << " " << token << " " << part;
      }
}

TEST(MemoryAttention, ReadsAnyStridesRight) {
  auto problem = window_problem({0, 17});
  const auto expected = problem.result();
  problem.q = problem.q.transpose(0, 2).contiguous().transpose(0, 2);
  problem.pool = problem.pool.transpose(0, 3).contiguous().transpose(0, 3);
  problem.bias = problem.bias.contiguous();
  problem.keys.from = problem.keys.from.t().contiguous().t();
  EXPECT_TRUE(same_bits(problem.result(), expected));
}

TEST(MemoryAttention, NamesTheArgumentThatIsWrong) {
  const auto message = [](const std::function<void(Problem&)>& spoil) -> std::string {
    auto problem = window_problem({0});
    spoil(problem);
    try {
      problem.result();
    } catch (const base::Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(message([](auto& p) { p.q = p.q.narrow(0, 0, 59); }),
            "memory_attention: q must be [60, H, d], got [59, 6, 10]");
  EXPECT_EQ(message([](auto& p) { p.q = p.q.narrow(1, 0, 5); }),
            "memory_attention: q must have a multiple of 2 heads, got 5");
  EXPECT_EQ(message([](auto& p) { p.pool = p.pool.narrow(3, 0, 9); }),
            "memory_attention: pool must be [R, 2, G, 10], got [68, 2, 2, 9]");
  EXPECT_EQ(message([](auto& p) { p.pool = p.pool.to(at::kDouble); }),
            "memory_attention: pool must be Float, got Double");
  EXPECT_EQ(message([](auto& p) { p.keys.index = p.keys.index + 1; }),
            "memory_attention: index must be from 0 to 67, got 2 to 68");
  EXPECT_EQ(message([](auto& p) { p.keys.until = p.keys.until.to(at::kInt); }),
            "memory_attention: until must be Long, got Int");
  EXPECT_EQ(message([](auto& p) {
              p.runs = QueryRuns(p.runs.runs, p.runs.num_tokens, at::Device("meta"));
            }),
            "memory_attention: runs must be on cpu, got meta");
  EXPECT_EQ(message([](auto& p) { p.bias = p.bias.expand({3, 7}); }),
            "memory_attention: bias must be [1, up to 67], got [3, 7]");
  EXPECT_EQ(message([](auto& p) { p.bias = p.bias.to(at::kDouble); }),
            "memory_attention: bias must be Float, got Double");
  EXPECT_EQ(message([](auto& p) { p.bias = p.bias.to(at::kMeta); }),
            "memory_attention: bias must be on cpu, got meta");
  EXPECT_EQ(message([](auto& p) { p.keys.index = p.keys.index[0]; }),
            "memory_attention: index must be [1, S], got [67]");
  EXPECT_EQ(message([](auto& p) { p.q = p.q.to(at::kLong); }),
            "memory_attention: q must hold floating-point numbers, got Long");
}

TEST(MemoryAttention, RunsMustLieApartAndInside) {
  const auto message = [](std::vector<QueryRuns::Run> runs, int64_t tokens) -> std::string {
    try {
      QueryRuns(std::move(runs), tokens, at::kCPU);
    } catch (const base::Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(message({{0, 10}}, 5),
            "memory_attention: a run must lie within 5 tokens, got 10 from 0");
  EXPECT_EQ(message({{-1, 2}}, 5),
            "memory_attention: a run must lie within 5 tokens, got 2 from -1");
  EXPECT_EQ(message({{0, 3}, {2, 3}}, 6),
            "memory_attention: runs must not overlap, got token 2 twice");
  EXPECT_EQ(message({{3, 3}, {0, 3}}, 6), "nothing was thrown");
}

}  // namespace
}  // namespace bmojo::nn
