#include "bmojo/nn/ops/linears.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>

#include "bench/cases.h"
#include "bmojo/base/error.h"
#include "bmojo/nn/ops/product.h"
#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

using bench::normal;
using test::relative_error, test::same_bits;

using Groups = std::vector<std::vector<at::Tensor>>;

// Over torch's products, and over ours.
class LinearMaps : public testing::TestWithParam<bool> {
 protected:
  LinearMaps() {
    if (GetParam()) ours_.emplace();
  }

 private:
  std::optional<EveryProduct> ours_;
};

// Few rows take the products one by one, 2,048 and more a group's at once.
TEST_P(LinearMaps, IsEveryMapOfTheSameInput) {
  for (const auto& [B, L] : {std::pair<int64_t, int64_t>(3, 7),
                             {1, 1},
                             {2, 301},
                             {1, 2047},
                             {2, 1024},
                             {3, 701},
                             {1, 3000}}) {
    auto x = normal({B, L, 13}, 1, 1);
    std::vector<at::Tensor> inputs = {x};
    for (const int64_t width : {5, 24, 1, 40}) inputs.push_back(normal({width, 13}, 1, width));
    for (auto& input : inputs) input.requires_grad_(true);
    const Groups groups = {{inputs[1]}, {inputs[2], inputs[3], inputs[4]}};
    const auto actual = linears(x, groups);
    ASSERT_EQ(actual.size(), 4u);
    std::vector<at::Tensor> expected, grads;
    for (size_t i = 0; i < 4; ++i) {
      expected.push_back(at::linear(x, inputs[i + 1]));
      EXPECT_EQ(actual[i].sizes(), expected[i].sizes());
      EXPECT_LE(relative_error(actual[i], expected[i]), 1e-6) << i;
      grads.push_back(normal(expected[i].sizes(), 1, 10 + static_cast<int64_t>(i)));
    }
    const auto to = torch::autograd::grad(actual, inputs, grads);
    const auto wanted = torch::autograd::grad(expected, inputs, grads);
    // Sums over up to 3,000 rows, in two orders.
    for (size_t i = 0; i < inputs.size(); ++i)
      EXPECT_LE(relative_error(to[i], wanted[i]), 5e-6) << i;
  }
}

TEST_P(LinearMaps, TakesAnyShapeTypeAndStrides) {
  const auto x = normal({4, 6, 8}, 1, 1), a = normal({3, 8}, 1, 2), b = normal({5, 8}, 1, 3);
  const auto close = [](const std::vector<at::Tensor>& actual, const at::Tensor& x,
                        const std::vector<at::Tensor>& weights) {
    for (size_t i = 0; i < weights.size(); ++i)
      EXPECT_LE(relative_error(actual[i], at::linear(x, weights[i])), 1e-6) << i;
  };
  close(linears(x[0][0], {{a, b}}), x[0][0], {a, b});
  close(linears(x.transpose(0, 1), {{a}, {b}}), x.transpose(0, 1), {a, b});
  close(linears(x.narrow(1, 1, 2), {{a, a}}), x.narrow(1, 1, 2), {a, a});
  const auto turned = b.t().contiguous().t();
  close(linears(x, {{a, turned}}), x, {a, turned});
  const auto wide = linears(x.to(at::kDouble), {{a.to(at::kDouble)}});
  EXPECT_TRUE(at::equal(wide[0], at::linear(x.to(at::kDouble), a.to(at::kDouble))));
  EXPECT_EQ(linears(x.narrow(0, 0, 0), {{a, b}})[1].sizes(), at::IntArrayRef({0, 6, 5}));
  EXPECT_TRUE(linears(x, {}).empty());
}

TEST_P(LinearMaps, ABiasIsAddedToTheProduct) {
  std::vector<at::Tensor> in = {normal({3, 7, 13}, 1, 1), normal({5, 13}, 1, 2), normal({5}, 1, 3)};
  for (auto& x : in) x.requires_grad_(true);
  const auto actual = linear_map(in[0], in[1], in[2]), expected = at::linear(in[0], in[1], in[2]);
  EXPECT_TRUE(same_bits(actual, linear_map(in[0], in[1]) + in[2]));
  EXPECT_LE(relative_error(actual, expected), 1e-6);
  const auto grad = normal({3, 7, 5}, 1, 4);
  const auto to = torch::autograd::grad({actual}, in, {grad}),
             wanted = torch::autograd::grad({expected}, in, {grad});
  for (size_t i = 0; i < 3; ++i) EXPECT_LE(relative_error(to[i], wanted[i]), 1e-6) << i;
}

TEST_P(LinearMaps, IsRightWhereInputsAreFrozenOrResultsUnused) {
  for (const int64_t L : {5, 1100}) {
    auto x = normal({2, L, 8}, 1, 1), a = normal({4, 8}, 1, 2), b = normal({3, 8}, 1, 3);
    b.requires_grad_(true);
    const auto frozen = linears(x, {{a, b}});
    const auto to_b = torch::autograd::grad({frozen[1].sum()}, {b})[0];
    EXPECT_LE(relative_error(to_b, x.sum({0, 1}).expand({3, 8})), 1e-5);
    // A map whose result is not used has no gradient, and none of its own in x.
    x.requires_grad_(true);
    a.requires_grad_(true);
    const auto y = linears(x, {{a, b}});
    const auto grads = torch::autograd::grad({y[1].sum()}, {x, a}, {}, /*retain_graph=*/{},
                                             /*create_graph=*/false, /*allow_unused=*/true);
    EXPECT_LE(relative_error(grads[0], b.sum(0).expand_as(x)), 1e-6);
    EXPECT_FALSE(grads[1].defined());
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(linears(x, {{a, b}})[0].requires_grad());
  }
}

// x is kept for the weights' gradients alone, and they for that of x: what is kept must not be
// changed before the backward pass, what is not may be.
TEST_P(LinearMaps, KeepsWhatAGradientNeeds) {
  const auto kept = [](bool to_x, bool to_weight, bool change_x) {
    auto x = normal({4, 6, 8}, 1, 1).requires_grad_(to_x);
    auto weight = normal({3, 8}, 1, 2).requires_grad_(to_weight);
    const auto y = linear_map(x, weight);
    {
      const at::NoGradGuard no_grad;
      (change_x ? x : weight).mul_(2);
    }
    try {
      y.sum().backward();
    } catch (const c10::Error&) {
      return true;
    }
    return false;
  };
  EXPECT_TRUE(kept(true, true, true) && kept(true, true, false));
  EXPECT_TRUE(kept(false, true, true) && kept(true, false, false));
  EXPECT_FALSE(kept(false, true, false) || kept(true, false, true));
}

INSTANTIATE_TEST_SUITE_P(TorchsAndOurs, LinearMaps, testing::Bool());

at::Tensor kernel(const at::Tensor& a, const at::Tensor& b) {
  const EveryProduct every;
  return product(a, b);
}

TEST(Product, TakesTheKernelWhereItIsFaster) {
  if (__builtin_cpu_supports("avx512f")) GTEST_SKIP() << "with AVX-512 torch's products stay";
  const auto a = normal({512, 256}, 1, 1), b = normal({512, 256}, 1, 2);
  EXPECT_TRUE(same_bits(product(a.t(), b), kernel(a.t(), b)));
  const auto few = a.t().narrow(0, 0, 255);
  EXPECT_TRUE(same_bits(product(few, b), at::mm(few, b)));
}

// The result of a sum has a gradient that is one number, 0 steps from the next.
TEST(Product, TakesAnyStepsAndNoColumns) {
  const auto one = at::ones({}).expand({300, 40}), b = normal({40, 256}, 1, 2);
  EXPECT_LE(relative_error(kernel(one, b), at::mm(one, b)), 1e-6);
  EXPECT_EQ(kernel(one, b.narrow(1, 0, 0)).sizes(), at::IntArrayRef({300, 0}));
}

TEST(Product, NamesTheArgumentThatIsWrong) {
  const auto a = normal({3, 4}, 1, 1), b = normal({4, 5}, 1, 2);
  const auto message = [&](at::Tensor out, const at::Tensor& b) -> std::string {
    try {
      product_into(out, a, b);
    } catch (const base::Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(message(at::zeros({3, 5}), b.t()), "product: b must be [4, N], got [5, 4]");
  EXPECT_EQ(message(at::zeros({5, 3}), b), "product: out must be [3, 5], got [5, 3]");
  EXPECT_EQ(message(at::zeros({5, 3}).t(), b),
            "product: out must have dense rows, got steps of 1 and 3");
  EXPECT_EQ(message(at::zeros({5}).expand({3, 5}), b),
            "product: out must have dense rows, got steps of 0 and 1");
}

TEST(Linears, NamesTheArgumentThatIsWrong) {
  const auto x = normal({2, 5, 8}, 1, 1);
  const auto thrown = [](const at::Tensor& x, const at::Tensor& weight) -> std::string {
    try {
      linears(x, {{weight}});
    } catch (const base::Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  const auto message = [&](const at::Tensor& weight) { return thrown(x, weight); };
  EXPECT_EQ(message(x[0].t()), "linears: weight must be [O, 8], got [8, 5]");
  EXPECT_EQ(message({}), "linears: weight must be [O, 8], got none");
  EXPECT_EQ(message(x[0].to(at::kDouble)), "linears: weight must be Float, got Double");
  EXPECT_EQ(message(x[0].to(at::kMeta)), "linears: weight must be on cpu, got meta");
  EXPECT_EQ(thrown({}, x[0]), "linears: x must be [..., I], I not 0, got none");
  EXPECT_EQ(thrown(x.to(at::kLong), x[0]), "linears: x must hold floating-point numbers, got Long");
}

}  // namespace
}  // namespace bmojo::nn
