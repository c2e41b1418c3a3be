// What the norm promises beyond its table of cases (kernel_test): any split of the rows, one output
// without the other, shapes, strides and bad input.

#include "bmojo/nn/ops/norm.h"

#include <gtest/gtest.h>

#include "bench/cases.h"
#include "bmojo/base/error.h"
#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

using bench::normal;
using test::relative_error, test::same_bits;

TEST(Norm, EverySplitAndEveryStepGivesTheSameBits) {
  test::on_every_target([] {
    const auto x = normal({2, 75, 37}, 1, 1), y = normal({2, 75, 37}, 1, 2),
               gain = normal({37}, 1, 3);
    const auto whole = rms_norm(x, gain, 1e-5);
    const auto added = add_rms_norm(x, y, gain, 1e-5);
    for (int64_t t = 0; t < 75; ++t) {
      const auto step = add_rms_norm(x.narrow(1, t, 1), y.narrow(1, t, 1), gain, 1e-5);
      EXPECT_TRUE(same_bits(rms_norm(x.narrow(1, t, 1), gain, 1e-5), whole.narrow(1, t, 1))) << t;
      EXPECT_TRUE(
          same_bits(rms_norm(x.narrow(1, t, 75 - t), gain, 1e-5), whole.narrow(1, t, 75 - t)));
      EXPECT_TRUE(same_bits(step.sum, added.sum.narrow(1, t, 1))) << t;
      EXPECT_TRUE(same_bits(step.norm, added.norm.narrow(1, t, 1))) << t;
    }
    EXPECT_TRUE(same_bits(added.sum, x + y));
    EXPECT_TRUE(same_bits(added.norm, rms_norm(x + y, gain, 1e-5)));
  });
}

TEST(Norm, EitherOutputAloneHasItsGradient) {
  const auto leaf = [](const at::Tensor& x) { return x.clone().requires_grad_(true); };
  const auto x = normal({3, 11, 21}, 1, 1), y = normal({3, 11, 21}, 1, 2),
             gain = normal({21}, 1, 3);
  for (const bool of_sum : {true, false}) {
    const auto a = leaf(x), b = leaf(y), g = leaf(gain);
    const auto out = add_rms_norm(a, b, g, 1e-5);
    (of_sum ? out.sum : out.norm).cos().sum().backward();
    const auto a2 = leaf(x.to(at::kDouble)), b2 = leaf(y.to(at::kDouble)),
               g2 = leaf(gain.to(at::kDouble));
    const auto exact = add_rms_norm(a2, b2, g2, 1e-5);
    (of_sum ? exact.sum : exact.norm).cos().sum().backward();
    EXPECT_LE(relative_error(a.grad(), a2.grad()), 1e-5);
    EXPECT_TRUE(same_bits(a.grad(), b.grad()));
    EXPECT_EQ(g.grad().defined(), !of_sum);
    if (!of_sum) {
      EXPECT_LE(relative_error(g.grad(), g2.grad()), 1e-5);
    }
  }
}

TEST(Norm, TakesAnyShapeAndStrides) {
  const auto gain = normal({6}, 1, 3), x = normal({4, 3, 5, 6}, 1, 1);
  const auto expected = rms_norm(x, gain, 1e-5);
  EXPECT_TRUE(same_bits(rms_norm(x[2][1][3], gain, 1e-5), expected[2][1][3]));
  EXPECT_TRUE(same_bits(rms_norm(x.transpose(0, 2), gain, 1e-5), expected.transpose(0, 2)));
  const auto last = x.transpose(0, 3).contiguous().transpose(0, 3);
  EXPECT_TRUE(same_bits(rms_norm(last, gain, 1e-5), expected));
  EXPECT_TRUE(
      same_bits(rms_norm(x, normal({6, 1}, 1, 3).expand({6, 2}).select(1, 1), 1e-5), expected));
  const auto same = x.narrow(1, 0, 1).expand({4, 3, 5, 6});
  EXPECT_TRUE(same_bits(rms_norm(same, gain, 1e-5), rms_norm(same.contiguous(), gain, 1e-5)));
  EXPECT_EQ(rms_norm(x.narrow(0, 0, 0), gain, 1e-5).sizes(), (at::IntArrayRef{0, 3, 5, 6}));
}

TEST(Norm, NamesTheArgumentThatIsWrong) {
  const auto message = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const base::Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  const auto x = normal({2, 5, 8}, 1, 1), gain = normal({8}, 1, 2);
  EXPECT_EQ(message([&] { rms_norm(x, gain.narrow(0, 0, 4), 1e-5); }),
            "rms_norm: gain must be [8], got [4]");
  EXPECT_EQ(message([&] { rms_norm(x, at::Tensor(), 1e-5); }),
            "rms_norm: gain must be [8], got none");
  EXPECT_EQ(message([&] { rms_norm(x, gain.to(at::kDouble), 1e-5); }),
            "rms_norm: gain must be Float, got Double");
  EXPECT_EQ(message([&] { rms_norm(at::Tensor(), gain, 1e-5); }),
            "rms_norm: x must be [..., D], D not 0, got none");
  EXPECT_EQ(message([&] { add_rms_norm(x, x[0], gain, 1e-5); }),
            "add_rms_norm: y must be [2, 5, 8], got [5, 8]");
  EXPECT_EQ(message([&] { add_rms_norm(x, x.to(at::kMeta), gain, 1e-5); }),
            "add_rms_norm: y must be on cpu, got meta");
}

}  // namespace
}  // namespace bmojo::nn
