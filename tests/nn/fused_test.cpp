// The kernels inside the layer: fp32, where every operation is fused, against double, where each is
// its reference, over documents, ragged rows and several calls. The choice of the double run is
// given to the other: a last bit may decide between two tokens.

#include <gtest/gtest.h>

#include "bmojo/nn/ops/linear_cross_entropy.h"
#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

using test::describe, test::Random, test::random_config, test::strong_parameters, test::tensors_of;

// Three calls of a few rows: what is read in each, and how it is cut.
struct Call {
  at::Tensor ids, targets;  // [B, L]
  at::Tensor read;          // [B, L] 1 for a token, 0 for padding
  CallOptions options;
};

std::vector<Call> random_calls(const model::Config& config, uint64_t seed) {
  Random random(seed + 1000);
  const int64_t B = 3, V = config.vocab_size;
  std::vector<int64_t> document(B, 0);
  std::vector<Call> calls;
  for (int64_t i = 0; i < 3; ++i) {
    const int64_t L = random.in(1, 17);
    Call call{at::randint(V, {B, L}, at::kLong), at::randint(V, {B, L}, at::kLong),
              at::zeros({B, L}, at::kLong), CallOptions()};
    for (int64_t b = 0; b < B; ++b) {
      // Each call has one row of full length; the others end anywhere, or do not begin.
      const int64_t length = b == i ? L : random.in(0, L);
      call.options.lengths.push_back(length);
      call.read[b].narrow(0, 0, length).fill_(1);
      for (int64_t t = 0; t < L; ++t) {
        document[b] += t < length && random.in(0, 8) == 0;
        call.options.documents.push_back(document[b]);
      }
    }
    call.targets.masked_fill_(call.read == 0, kUnscored);
    calls.push_back(std::move(call));
  }
  return calls;
}

// A scalar of everything in x: each element with its own weight, the same in both types.
at::Tensor readout(const at::Tensor& x) {
  const auto weight = at::arange(1, x.numel() + 1, at::kDouble).sin().view(x.sizes());
  return (x * weight.to(x.scalar_type())).sum();
}

struct Result {
  std::vector<at::Tensor> hidden;  // of each call, 0 on padding
  std::vector<std::pair<std::string, at::Tensor>> state;
  std::vector<std::pair<std::string, at::Tensor>> gradients;
};

// `calls` with the choices of another run, if they have any; else with those of this one after it.
Result run(Model model, std::vector<Call>& calls) {
  model.require_gradients();
  Result result;
  State state;
  at::Tensor loss = at::zeros({}, model.parameters()[0].second.options().requires_grad(false));
  for (auto& call : calls) {
    const auto out = model.forward(call.ids, state, call.options);
    state = out.state;
    call.options.selections = out.selections;
    const auto hidden = out.hidden * call.read.unsqueeze(2);
    loss = loss + readout(hidden) + model.loss(out.hidden, call.targets);
    result.hidden.push_back(hidden);
  }
  result.state = tensors_of(state);
  for (const auto& [name, tensor] : result.state)
    if (tensor.is_floating_point()) loss = loss + readout(tensor);
  loss.backward();
  for (const auto& [name, tensor] : model.parameters())
    result.gradients.emplace_back(name,
                                  tensor.grad().defined() ? tensor.grad() : at::zeros_like(tensor));
  return result;
}

double largest(const at::Tensor& x) {
  return x.numel() == 0 ? 0 : x.detach().abs().max().item<double>();
}

// The largest difference is at most `bound` of `scale`.
void expect_near(const at::Tensor& actual, const at::Tensor& expected, double bound, double scale,
                 const std::string& what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  ASSERT_EQ(actual.scalar_type(), at::kFloat) << what;
  EXPECT_LE(largest(actual.to(at::kDouble) - expected), bound * scale) << what;
}

// fp32 rounds by 6e-8. Some forty tokens of state, scores of up to some twenty in a softmax and the
// norms' divisions make hundreds of it in outputs; backward passes go through all that once more.
constexpr double kOutputs = 5e-5, kGradients = 2e-4;

TEST(Fused, LayerEqualsItsReferences) {
  for (uint64_t seed = 0; seed < 32; ++seed) {
    auto config = random_config(seed);
    config.norm_eps = 0.05;  // the norm of a small output would show its rounding enlarged
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, describe(config)));
    // Rounded before they are widened: both runs have the same weights.
    const Model fused(config, strong_parameters(config, seed, at::kFloat));
    auto calls = random_calls(config, seed);
    const auto exact = run(fused.to(at::TensorOptions().dtype(at::kDouble)), calls);
    const auto actual = run(fused, calls);

    for (size_t i = 0; i < calls.size(); ++i)
      expect_near(actual.hidden[i], exact.hidden[i], kOutputs, largest(exact.hidden[i]),
                  fmt::format("call {}", i));
    ASSERT_EQ(actual.state.size(), exact.state.size());
    for (size_t i = 0; i < exact.state.size(); ++i) {
      const auto& [name, expected] = exact.state[i];
      ASSERT_EQ(actual.state[i].first, name);
      if (expected.is_floating_point()) {
        expect_near(actual.state[i].second, expected, kOutputs, largest(expected), name);
      } else {
        EXPECT_TRUE(at::equal(actual.state[i].second, expected)) << name;
      }
    }
    // A gradient that nearly cancels keeps the rounding of the sums it comes from.
    double all = 0;
    for (const auto& [name, gradient] : exact.gradients) all = std::max(all, largest(gradient));
    for (size_t i = 0; i < exact.gradients.size(); ++i) {
      const auto& [name, expected] = exact.gradients[i];
      expect_near(actual.gradients[i].second, expected, kGradients,
                  std::max(largest(expected), 1e-3 * all), name);
    }
  }
}

}  // namespace
}  // namespace bmojo::nn
