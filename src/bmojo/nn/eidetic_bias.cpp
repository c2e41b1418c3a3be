#include "bmojo/nn/eidetic_bias.h"

#include <torch/torch.h>

#include <limits>

#include "bmojo/nn/types.h"

namespace bmojo::nn {
namespace {

struct Cut {
  at::Tensor kept;   // [P, m] bool
  at::Tensor level;  // [P, 1] c
  at::Tensor bites;  // [P, 1] bool: there is a member that is not kept
};

// By rank, NaN and empty places last; a stable sort prefers the earlier of equals.
Cut cut_at(const at::Tensor& log_innovation, const at::Tensor& there, int64_t places) {
  constexpr double kLowest = -std::numeric_limits<double>::infinity();
  const auto x = log_innovation.detach();
  const auto rank = x.masked_fill(x != x, kLowest).masked_fill(~there, kLowest);
  const auto [sorted, order] = rank.sort(/*stable=*/true, 1, /*descending=*/true);
  const auto place = order.argsort(/*stable=*/true, 1);
  const auto level = (sorted.narrow(1, places - 1, 1) + sorted.narrow(1, places, 1)) / 2;
  return {(place < places) & there, level, there.sum(1, /*keepdim=*/true) > places};
}

}  // namespace

at::Tensor eidetic_bias(const EideticBiasInput& in) {
  const bool cuts = in.cut.places > 0 && in.cut.places < in.there.size(1);
  if (!in.beta.defined() && !cuts) return {};
  const auto log_innovation = (in.innovation + 1e-6).log().masked_fill(~in.there, 0);
  auto kept = in.there;
  at::Tensor fade;
  if (cuts) {
    const auto cut = cut_at(log_innovation, in.there, in.cut.places);
    kept = cut.kept;
    const auto level = cut.level.masked_fill(~cut.bites, 0);
    fade =
        at::log_sigmoid((log_innovation - level) / in.cut.temperature).masked_fill(~cut.bites, 0);
  }
  if (!in.beta.defined()) return fade;
  // Attention weight ∝ (ε / ε̄)^β · exp(q·k/√d), ε̄ the geometric mean of what is kept.
  const auto mean = log_innovation.masked_fill(~kept, 0).sum(1, /*keepdim=*/true) /
                    kept.sum(1, /*keepdim=*/true).clamp_min(1);
  const auto bias = widen(in.beta) * (log_innovation - mean);
  return fade.defined() ? bias + fade : bias;
}

}  // namespace bmojo::nn
