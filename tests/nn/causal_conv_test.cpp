// What the convolution promises beyond its table of cases (kernel_test): splits, steps, documents,
// strides and bad input.

#include "bmojo/nn/ops/causal_conv.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "bench/cases.h"
#include "bmojo/base/error.h"
#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

using bench::normal;
using test::same_bits;

CausalConv random_conv(int64_t B, int64_t L, int64_t E, int64_t K) {
  return {.x = normal({B, L, E}, 1, 1),
          .weight = normal({E, 1, K}, 1, 2),
          .bias = normal({E}, 1, 3),
          .tail = normal({B, K - 1, E}, 1, 4),
          .positions = at::arange(L, at::kLong).expand({B, L})};
}

// Tokens [from, from + count), behind `tail`.
CausalConv part(CausalConv conv, int64_t from, int64_t count, const at::Tensor& tail) {
  conv.x = conv.x.narrow(1, from, count);
  conv.positions = conv.positions.narrow(1, from, count);
  conv.tail = tail;
  return conv;
}

TEST(CausalConv, EverySplitAndEveryStepGivesTheSameBits) {
  test::on_every_target([] {
    for (const int64_t K : {1, 4, 6}) {
      auto conv = random_conv(2, 75, 21, K);
      conv.positions = (at::arange(75, at::kLong) + 2).remainder(31).expand({2, 75});
      const auto whole = causal_conv1d_silu(conv);
      for (int64_t split = 1; split < 75; ++split) {
        const auto a = causal_conv1d_silu(part(conv, 0, split, conv.tail));
        const auto b = causal_conv1d_silu(part(conv, split, 75 - split, a.tail));
        EXPECT_TRUE(same_bits(at::cat({a.y, b.y}, 1), whole.y)) << split;
        EXPECT_TRUE(same_bits(b.tail, whole.tail)) << split;
      }
      auto tail = conv.tail;
      for (int64_t t = 0; t < 75; ++t) {
        const auto step = causal_conv1d_silu(part(conv, t, 1, tail));
        EXPECT_TRUE(same_bits(step.y, whole.y.narrow(1, t, 1))) << t;
        tail = step.tail;
      }
      EXPECT_TRUE(same_bits(tail, whole.tail));
    }
  });
}

TEST(CausalConv, RaggedRowsAreTheRowsAlone) {
  auto conv = random_conv(4, 40, 13, 4);
  conv.positions = (conv.positions + 1).remainder(31);  // goes on with one document, starts another
  conv.lengths = {40, 0, 2, 33};
  const auto whole = causal_conv1d_silu(conv);
  for (int64_t b = 0; b < 4; ++b) {
    SCOPED_TRACE(b);
    const int64_t length = conv.lengths[static_cast<size_t>(b)];
    EXPECT_EQ(whole.y[b].slice(0, length).count_nonzero().item<int64_t>(), 0);
    if (length == 0) {  // there is no such call: what was carried stays
      EXPECT_TRUE(same_bits(whole.tail[b], conv.tail[b]));
      continue;
    }
    auto alone = part(conv, 0, length, conv.tail.narrow(0, b, 1));
    alone.x = alone.x.narrow(0, b, 1);
    alone.positions = alone.positions.narrow(0, b, 1);
    alone.lengths.clear();
    const auto expected = causal_conv1d_silu(alone);
    EXPECT_TRUE(same_bits(whole.y[b].narrow(0, 0, length), expected.y[0]));
    EXPECT_TRUE(same_bits(whole.tail[b], expected.tail[0]));
  }
}

TEST(CausalConv, NothingOfADocumentReachesTheNextNotEvenNaN) {
  auto conv = random_conv(1, 50, 9, 4);
  conv.positions = at::cat({at::arange(20, at::kLong), at::arange(30, at::kLong)}).view({1, 50});
  const auto clean = causal_conv1d_silu(conv);
  conv.x = conv.x.clone();
  conv.x.narrow(1, 18, 2).fill_(NAN);
  conv.tail = at::full_like(conv.tail, NAN);
  for (auto* x : {&conv.x, &conv.tail}) x->requires_grad_(true);
  const auto spoiled = causal_conv1d_silu(conv);
  EXPECT_TRUE(spoiled.y.narrow(1, 18, 2).isnan().all().item<bool>());
  EXPECT_TRUE(same_bits(spoiled.y.narrow(1, 0, 18), clean.y.narrow(1, 0, 18)));
  EXPECT_TRUE(same_bits(spoiled.y.narrow(1, 20, 30), clean.y.narrow(1, 20, 30)));
  // NaN in the loss of one document stays there, too.
  spoiled.y.sum().backward();
  EXPECT_TRUE(conv.x.grad().narrow(1, 20, 30).isfinite().all().item<bool>());
  EXPECT_EQ(conv.tail.grad().count_nonzero().item<int64_t>(), 0);
}

TEST(CausalConv, GradientPassesThroughTheTail) {
  auto conv = random_conv(1, 2, 3, 6);
  for (auto* x : {&conv.x, &conv.tail}) x->requires_grad_(true);
  const auto weight = normal({1, 5, 3}, 1, 5);
  (causal_conv1d_silu(conv).tail * weight).sum().backward();
  EXPECT_TRUE(same_bits(conv.x.grad(), weight.narrow(1, 3, 2)));
  EXPECT_TRUE(same_bits(conv.tail.grad().narrow(1, 2, 3), weight.narrow(1, 0, 3)));
  EXPECT_EQ(conv.tail.grad().narrow(1, 0, 2).count_nonzero().item<int64_t>(), 0);
}

TEST(CausalConv, ReadsAnyStridesRight) {
  const auto conv = random_conv(3, 17, 10, 4);
  const auto expected = causal_conv1d_silu(conv);
  auto other = conv;
  other.x = conv.x.transpose(1, 2).contiguous().transpose(1, 2);
  other.weight = conv.weight.transpose(0, 2).contiguous().transpose(0, 2);
  other.bias = at::stack({conv.bias, conv.bias}, 1).select(1, 1);
  other.tail = conv.tail.transpose(0, 1).contiguous().transpose(0, 1);
  EXPECT_TRUE(same_bits(causal_conv1d_silu(other).y, expected.y));
  EXPECT_TRUE(same_bits(causal_conv1d_silu(other).tail, expected.tail));
  other.x = conv.x.narrow(1, 0, 1).expand({3, 17, 10});
  const auto same = causal_conv1d_silu(other);
  other.x = other.x.contiguous();
  EXPECT_TRUE(same_bits(causal_conv1d_silu(other).y, same.y));
}

TEST(CausalConv, ReferenceNeedsNoValues) {
  auto conv = random_conv(3, 17, 10, 4);
  conv.lengths = {3, 17, 0};
  for (auto* x : {&conv.x, &conv.weight, &conv.bias, &conv.tail, &conv.positions})
    *x = x->to(at::kMeta);
  const auto out = causal_conv1d_silu(conv);
  EXPECT_EQ(out.y.sizes(), (at::IntArrayRef{3, 17, 10}));
  EXPECT_EQ(out.tail.sizes(), (at::IntArrayRef{3, 3, 10}));
}

TEST(CausalConv, NamesTheArgumentThatIsWrong) {
  const auto message = [](const std::function<void(CausalConv&)>& spoil) -> std::string {
    auto conv = random_conv(2, 16, 8, 4);
    spoil(conv);
    try {
      causal_conv1d_silu(conv);
    } catch (const base::Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(message([](auto& c) { c.x = c.x[0]; }),
            "causal_conv1d_silu: x must be [B, L, channels], none of them 0, got [16, 8]");
  EXPECT_EQ(message([](auto& c) { c.weight = at::Tensor(); }),
            "causal_conv1d_silu: weight must be [E, 1, K], none of them 0, got none");
  EXPECT_EQ(message([](auto& c) { c.weight = c.weight.narrow(0, 0, 4); }),
            "causal_conv1d_silu: weight must be [8, 1, 4], got [4, 1, 4]");
  EXPECT_EQ(message([](auto& c) { c.bias = c.bias.to(at::kDouble); }),
            "causal_conv1d_silu: bias must be Float, got Double");
  EXPECT_EQ(message([](auto& c) { c.tail = c.tail.narrow(1, 0, 2); }),
            "causal_conv1d_silu: tail must be [2, 3, 8], got [2, 2, 8]");
  EXPECT_EQ(message([](auto& c) { c.positions = c.positions.to(at::kInt); }),
            "causal_conv1d_silu: positions must be Long, got Int");
  EXPECT_EQ(message([](auto& c) { c.positions = c.positions.to(at::kMeta); }),
            "causal_conv1d_silu: positions must be on cpu, got meta");
  EXPECT_EQ(message([](auto& c) { c.lengths = {3, 17}; }),
            "causal_conv1d_silu: lengths must be from 0 to 16, got 17");
  EXPECT_EQ(message([](auto& c) { c.lengths = {3}; }),
            "causal_conv1d_silu: lengths must have 2 entries, got 1");
}

}  // namespace
}  // namespace bmojo::nn
