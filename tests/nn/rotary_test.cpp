// What the rotary encoding promises beyond its table of cases (kernel_test): steps, far positions,
// strides and bad input.

#include "bmojo/nn/ops/rotary.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "bench/cases.h"
#include "bmojo/base/error.h"
#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

using bench::normal;
using test::same_bits;

at::Tensor turned(const at::Tensor& x, const at::Tensor& position, double theta) {
  return rotate(x, rotary_angles(position, x.size(-1), theta, x.scalar_type()));
}

TEST(Rotary, EverySplitAndEveryStepGivesTheSameBits) {
  test::on_every_target([] {
    const auto x = normal({2, 375, 3, 22}, 1, 1);
    const auto position = (at::arange(750, at::kLong) * 31).view({2, 375});
    const auto whole = turned(x, position, 1e4);
    for (int64_t t = 0; t < 375; t += 5) {
      EXPECT_TRUE(same_bits(turned(x.narrow(1, t, 1), position.narrow(1, t, 1), 1e4),
                            whole.narrow(1, t, 1)))
          << t;
      EXPECT_TRUE(same_bits(turned(x.narrow(1, t, 375 - t), position.narrow(1, t, 375 - t), 1e4),
                            whole.narrow(1, t, 375 - t)))
          << t;
    }
  });
}

// Half a unit in the last place, and what one of a double makes of an angle of 2^24.
TEST(Rotary, AnglesInFloatAreThoseOfDoubleRounded) {
  const auto position = at::cat({at::arange(300, at::kLong), at::arange(300, at::kLong) * 55'924});
  for (const double theta : {100.0, 1e4, 1e6}) {
    const auto exact = rotary_angles(position.view({2, 300}), 22, theta, at::kDouble);
    test::on_every_target([&] {
      const auto table = rotary_angles(position.view({2, 300}), 22, theta, at::kFloat);
      const auto error = [](const at::Tensor& x, const at::Tensor& y) {
        return (x.to(at::kDouble) - y).abs().max().item<double>();
      };
      EXPECT_EQ(table.cos.sizes(), exact.cos.sizes());
      EXPECT_LE(error(table.cos, exact.cos), 0x1p-25 + 8e-9);
      EXPECT_LE(error(table.sin, exact.sin), 0x1p-25 + 8e-9);
      EXPECT_TRUE(same_bits(table.cos,
                            rotary_angles(position, 22, theta, at::kFloat).cos.view({2, 300, 11})));
    });
  }
}

TEST(Rotary, ProductsDependOnTheDistanceAloneHoweverFar) {
  const auto q = normal({1, 2, 16}, 1, 1), k = normal({1, 2, 16}, 1, 2);
  const auto product = [&](int64_t at) {
    const auto to = torch::tensor({at + 5}, torch::kLong), from = torch::tensor({at}, torch::kLong);
    return (turned(q, to, 1e4) * turned(k, from, 1e4)).sum(-1);
  };
  EXPECT_LE(test::relative_error(product(1'000'000), product(0)), 1e-6);
}

TEST(Rotary, TakesAnyShapeAndStrides) {
  const auto x = normal({4, 3, 5, 6}, 1, 1);
  const auto position = at::arange(12, at::kLong).view({4, 3});
  const auto expected = turned(x, position, 100);
  EXPECT_TRUE(same_bits(turned(x[2][1], position[2][1], 100), expected[2][1]));
  EXPECT_TRUE(same_bits(turned(x.transpose(0, 1), position.t(), 100), expected.transpose(0, 1)));
  const auto heads = x.transpose(1, 2).contiguous().transpose(1, 2);
  EXPECT_TRUE(same_bits(turned(heads, position, 100), expected));
  const auto last = x.transpose(0, 3).contiguous().transpose(0, 3);
  EXPECT_TRUE(same_bits(turned(last, position, 100), expected));
  EXPECT_TRUE(same_bits(turned(x.narrow(2, 1, 3), position, 100), expected.narrow(2, 1, 3)));
  const auto wide = at::cat({x, x}, -1).narrow(-1, 0, 6);
  EXPECT_TRUE(same_bits(turned(wide, position, 100), expected));
  EXPECT_EQ(turned(x.narrow(0, 0, 0), position.narrow(0, 0, 0), 100).numel(), 0);
}

TEST(Rotary, NamesTheArgumentThatIsWrong) {
  const auto message = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const base::Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  const auto x = normal({2, 5, 3, 8}, 1, 1);
  const auto angles = rotary_angles(at::zeros({2, 5}, at::kLong), 8, 1e4, at::kFloat);
  const auto turns = [&](const at::Tensor& x, const Angles& angles) {
    return message([&] { rotate(x, angles); });
  };
  EXPECT_EQ(turns(x, {angles.cos[0], angles.sin}), "rotate: cos must be [2, 5, 4], got [5, 4]");
  EXPECT_EQ(turns(x, {angles.cos, {}}), "rotate: sin must be [2, 5, 4], got none");
  EXPECT_EQ(turns(x, {angles.cos.to(at::kMeta), angles.sin}),
            "rotate: cos must be on cpu, got meta");
  EXPECT_EQ(turns(x, {angles.cos, angles.sin.to(at::kDouble)}),
            "rotate: sin must be Float, got Double");
  EXPECT_EQ(turns(x.narrow(3, 0, 7), angles),
            "rotate: x must be [..., heads, d], d even, none of them 0, got [2, 5, 3, 7]");
  EXPECT_EQ(turns(x.to(at::kLong), angles), "rotate: x must hold floating-point numbers, got Long");
  EXPECT_EQ(message([] { rotary_angles(at::zeros({2}), 8, 1e4, at::kFloat); }),
            "rotary_angles: position must be Long, got Float");
  EXPECT_EQ(message([] { rotary_angles({}, 8, 1e4, at::kFloat); }),
            "rotary_angles: position must be Long, got none");
  EXPECT_EQ(message([] { rotary_angles(at::zeros({2}, at::kLong), 7, 1e4, at::kFloat); }),
            "rotary_angles: d must be even, got 7");
}

}  // namespace
}  // namespace bmojo::nn
