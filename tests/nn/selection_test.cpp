// Innovation Selection against the streaming rule, on innovations made to collide: ties, NaN, ∞.

#include "bmojo/nn/selection.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "bmojo/nn/ops/fused.h"
#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

// A token enters a full set only if its ε exceeds the smallest in it; of equals the latest leaves;
// NaN is below every number.
std::vector<int64_t> stream(const std::vector<double>& innovation, int64_t m) {
  const auto rank = [&](int64_t p) { return std::isnan(innovation[p]) ? -1 : innovation[p]; };
  std::vector<int64_t> held;
  for (int64_t t = 0; t < std::ssize(innovation); ++t) {
    if (std::ssize(held) < m) {
      held.push_back(t);
      continue;
    }
    auto smallest = held.begin();
    for (auto it = held.begin(); it != held.end(); ++it)
      if (rank(*it) <= rank(*smallest)) smallest = it;
    if (rank(t) <= rank(*smallest)) continue;
    held.erase(smallest);
    held.push_back(t);
  }
  return held;
}

Candidates candidates_of(const at::Tensor& innovation) {
  const int64_t L = innovation.size(1);
  const auto nowhere = at::full({1, 1}, kNowhere, at::kLong);
  return {.num_held = 0,
          .innovation = at::cat({innovation, at::ones({1, 1}, innovation.options())}, 1),
          .position = at::cat({at::arange(L).unsqueeze(0), nowhere}, 1),
          .token = at::zeros({1, L + 1}, at::kLong),
          .row = at::zeros({1, L + 1}, at::kLong)};
}

TEST(Selection, StreamingRuleWithTiesAndSpecialValues) {
  const double values[] = {0, 0.5, 0.5, 1, 2, NAN, INFINITY};
  test::Random random(5);
  for (int trial = 0; trial < 400; ++trial) {
    const int64_t L = random.in(1, 30), w = random.in(1, 9), m = std::min(L, random.in(1, 12));
    std::vector<double> innovation;
    for (int64_t t = 0; t < L; ++t) innovation.push_back(values[random.in(0, 6)]);
    model::Config config = test::random_config(0);
    config.window = w;
    const Layout layout(config, Sequences{1, L, {}, {}}, {}, at::kCPU);
    const auto all = candidates_of(torch::tensor(innovation, at::kDouble).unsqueeze(0));
    // The one pass of the CPU and the tensor operations of other devices in turn.
    std::optional<ReferenceOnly> reference;
    if (trial % 2) reference.emplace();
    const auto chosen = select(all, {}, layout, w, m);
    for (size_t i = 0; i < layout.pieces.size(); ++i) {
      const auto& piece = layout.pieces[i];
      const auto rule = [&](int64_t read) {
        auto held = stream({innovation.begin(), innovation.begin() + read}, m);
        held.resize(m, L);  // the place that holds nothing
        return held;
      };
      const auto as_vector = [&](const at::Tensor& x) {
        return std::vector<int64_t>(x.data_ptr<int64_t>(), x.data_ptr<int64_t>() + m);
      };
      ASSERT_EQ(as_vector(chosen.visible[i].contiguous()), rule(piece.position))
          << "before piece " << i;
      auto kept = as_vector(chosen.kept[i].contiguous());
      std::ranges::replace(kept, kNowhere, L);
      ASSERT_EQ(kept, rule(piece.position + piece.count)) << "after piece " << i;
    }
  }
}

}  // namespace
}  // namespace bmojo::nn
