// What the innovation promises beyond its table of cases (kernel_test): splits, steps, documents,
// zeros, strides and bad input.

#include "bmojo/nn/ops/innovation.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "bench/cases.h"
#include "bmojo/base/error.h"
#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

using bench::normal;
using test::same_bits;

Innovation random_innovation(int64_t B, int64_t L, int64_t D, int64_t k) {
  return {
      .y = normal({B, L, D}, 1, 1),
      .tail = normal({B, k, D}, 1, 2),
      .positions = at::arange(L, at::kLong).expand({B, L}),
      .coefficients = std::vector<double>(static_cast<size_t>(k), 1.0 / static_cast<double>(k))};
}

// Tokens [from, from + count), behind `tail`.
Innovation part(Innovation in, int64_t from, int64_t count, const at::Tensor& tail) {
  in.y = in.y.narrow(1, from, count);
  in.positions = in.positions.narrow(1, from, count);
  in.tail = tail;
  return in;
}

TEST(Innovation, EverySplitAndEveryStepGivesTheSameBits) {
  test::on_every_target([] {
    for (const int64_t k : {1, 4}) {
      auto in = random_innovation(2, 75, 21, k);
      in.positions = (at::arange(75, at::kLong) + 2).remainder(31).expand({2, 75});
      const auto whole = innovation(in);
      for (int64_t split = 1; split < 75; ++split) {
        const auto a = innovation(part(in, 0, split, in.tail));
        const auto b = innovation(part(in, split, 75 - split, a.tail));
        EXPECT_TRUE(same_bits(at::cat({a.epsilon, b.epsilon}, 1), whole.epsilon)) << split;
        EXPECT_TRUE(same_bits(b.tail, whole.tail)) << split;
      }
      auto tail = in.tail;
      for (int64_t t = 0; t < 75; ++t) {
        const auto step = innovation(part(in, t, 1, tail));
        EXPECT_TRUE(same_bits(step.epsilon, whole.epsilon.narrow(1, t, 1))) << t;
        tail = step.tail;
      }
      EXPECT_TRUE(same_bits(tail, whole.tail));
    }
  });
}

TEST(Innovation, NothingOfADocumentReachesTheNextNotEvenNaN) {
  auto in = random_innovation(1, 50, 9, 4);
  in.positions = at::cat({at::arange(20, at::kLong), at::arange(30, at::kLong)}).view({1, 50});
  const auto clean = innovation(in);
  in.y = in.y.clone();
  in.y.narrow(1, 18, 2).fill_(NAN);
  in.tail = at::full_like(in.tail, NAN);
  for (auto* x : {&in.y, &in.tail}) x->requires_grad_(true);
  const auto spoiled = innovation(in);
  EXPECT_TRUE(spoiled.epsilon.narrow(1, 18, 2).isnan().all().item<bool>());
  EXPECT_TRUE(same_bits(spoiled.epsilon.narrow(1, 0, 18), clean.epsilon.narrow(1, 0, 18)));
  EXPECT_TRUE(same_bits(spoiled.epsilon.narrow(1, 20, 30), clean.epsilon.narrow(1, 20, 30)));
  spoiled.epsilon.sum().backward();
  EXPECT_TRUE(in.y.grad().narrow(1, 20, 30).isfinite().all().item<bool>());
  EXPECT_EQ(in.tail.grad().count_nonzero().item<int64_t>(), 0);
}

TEST(Innovation, AnExactPredictionHasNoInnovationAndNoGradient) {
  auto in = random_innovation(2, 12, 10, 4);
  in.y = at::ones_like(in.y).requires_grad_(true);
  in.tail = at::ones_like(in.tail).requires_grad_(true);
  in.positions = in.positions + 4;
  const auto out = innovation(in);
  EXPECT_EQ(out.epsilon.count_nonzero().item<int64_t>(), 0);
  out.epsilon.sum().backward();
  EXPECT_EQ(in.y.grad().count_nonzero().item<int64_t>(), 0);
  EXPECT_EQ(in.tail.grad().count_nonzero().item<int64_t>(), 0);
}

TEST(Innovation, RaggedRowsAreTheRowsAlone) {
  auto in = random_innovation(4, 40, 13, 3);
  in.positions = (in.positions + 1).remainder(31);  // goes on with one document, starts another
  in.lengths = {40, 0, 2, 33};
  const auto whole = innovation(in);
  for (int64_t b = 0; b < 4; ++b) {
    SCOPED_TRACE(b);
    const int64_t length = in.lengths[static_cast<size_t>(b)];
    EXPECT_EQ(whole.epsilon[b].slice(0, length).count_nonzero().item<int64_t>(), 0);
    if (length == 0) {  // there is no such call: what was carried stays
      EXPECT_TRUE(same_bits(whole.tail[b], in.tail[b]));
      continue;
    }
    auto alone = part(in, 0, length, in.tail.narrow(0, b, 1));
    alone.y = alone.y.narrow(0, b, 1);
    alone.positions = alone.positions.narrow(0, b, 1);
    alone.lengths.clear();
    const auto expected = innovation(alone);
    EXPECT_TRUE(same_bits(whole.epsilon[b].narrow(0, 0, length), expected.epsilon[0]));
    EXPECT_TRUE(same_bits(whole.tail[b], expected.tail[0]));
  }
}

TEST(Innovation, ReadsAnyStridesRight) {
  const auto in = random_innovation(3, 17, 10, 4);
  const auto expected = innovation(in);
  auto other = in;
  other.y = in.y.transpose(1, 2).contiguous().transpose(1, 2);
  other.tail = in.tail.transpose(0, 1).contiguous().transpose(0, 1);
  EXPECT_TRUE(same_bits(innovation(other).epsilon, expected.epsilon));
  EXPECT_TRUE(same_bits(innovation(other).tail, expected.tail));
}

TEST(Innovation, ReferenceNeedsNoValues) {
  auto in = random_innovation(3, 17, 10, 4);
  in.lengths = {3, 17, 0};
  for (auto* x : {&in.y, &in.tail, &in.positions}) *x = x->to(at::kMeta);
  const auto out = innovation(in);
  EXPECT_EQ(out.epsilon.sizes(), (at::IntArrayRef{3, 17}));
  EXPECT_EQ(out.tail.sizes(), (at::IntArrayRef{3, 4, 10}));
}

TEST(Innovation, NamesTheArgumentThatIsWrong) {
  const auto message = [](const std::function<void(Innovation&)>& spoil) -> std::string {
    auto in = random_innovation(2, 16, 8, 4);
    spoil(in);
    try {
      innovation(in);
    } catch (const base::Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(message([](auto& in) { in.y = in.y[0]; }),
            "innovation: y must be [B, L, channels], none of them 0, got [16, 8]");
  EXPECT_EQ(message([](auto& in) { in.coefficients.pop_back(); }),
            "innovation: tail must be [2, 3, 8], got [2, 4, 8]");
  EXPECT_EQ(message([](auto& in) { in.tail = in.tail.to(at::kDouble); }),
            "innovation: tail must be Float, got Double");
  EXPECT_EQ(message([](auto& in) { in.positions = at::Tensor(); }),
            "innovation: positions must be [2, 16], got none");
  EXPECT_EQ(message([](auto& in) { in.lengths = {3, -1}; }),
            "innovation: lengths must be from 0 to 16, got -1");
}

}  // namespace
}  // namespace bmojo::nn
