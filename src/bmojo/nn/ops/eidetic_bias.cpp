#include "bmojo/nn/ops/eidetic_bias.h"

#include <torch/torch.h>

#include <limits>

#include "bmojo/kernels/eidetic_bias.h"
#include "bmojo/nn/ops/fused.h"

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

// 0, with the gradient of each set's mean over members that are finite numbers.
at::Tensor moved_by(const at::Tensor& log_innovation, const at::Tensor& there) {
  const auto counted = there & log_innovation.detach().isfinite();
  const auto mean = log_innovation.masked_fill(~counted, 0).sum(1, /*keepdim=*/true) /
                    counted.sum(1, /*keepdim=*/true).clamp_min(1);
  return mean - mean.detach();
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

kernels::EideticBias view(const at::Tensor& innovation, const at::Tensor& there,
                          const at::Tensor& beta) {
  return {.P = there.size(0),
          .m = there.size(1),
          .innovation = floats(innovation),
          .there = there.const_data_ptr<bool>(),
          .beta = beta.item<float>()};
}

struct FusedBias : torch::autograd::Function<FusedBias> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& innovation,
                            const at::Tensor& there, const at::Tensor& beta, bool differentiable) {
    const auto e = innovation.contiguous(), t = there.contiguous();
    const auto bias = at::empty(e.sizes(), e.options());
    kernels::eidetic_bias(view(e, t, beta), bias.data_ptr<float>(), parallel_for);
    if (differentiable) context->save_for_backward({e, t, beta});
    return bias;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    first_derivative_only("eidetic_bias");
    const auto saved = context->get_saved_variables();
    const auto grad = grads[0].contiguous();
    const auto to_innovation = at::empty(grad.sizes(), grad.options()),
               to_beta = at::empty({grad.size(0)}, grad.options());
    kernels::eidetic_bias_backward(view(saved[0], saved[1], saved[2]), floats(grad),
                                   to_innovation.data_ptr<float>(), to_beta.data_ptr<float>(),
                                   parallel_for);
    return {to_innovation, at::Tensor(), to_beta.sum().reshape(saved[2].sizes()), at::Tensor()};
  }
};

}  // namespace

at::Tensor eidetic_bias(const EideticBiasInput& in) {
  const bool cuts = in.cut.places > 0 && in.cut.places < in.there.size(1);
  if (!in.beta.defined() && !cuts) return {};
  if (!cuts && use_kernel({in.innovation, in.beta}))
    return FusedBias::apply(in.innovation, in.there, in.beta,
                            differentiable({in.innovation, in.beta}));
  const auto log_innovation = (in.innovation + 1e-6).log().masked_fill(~in.there, 0);
  auto kept = in.there;
  at::Tensor fade;
  if (cuts) {
    const auto cut = cut_at(log_innovation, in.there, in.cut.places);
    kept = cut.kept;
    auto level = cut.level.masked_fill(~cut.bites, 0);
    if (in.cut.level_moves) level = level + moved_by(log_innovation, in.there);
    fade = at::log_sigmoid((log_innovation - level) / in.cut.temperature)
               .masked_fill(~(cut.bites & in.there), 0);
  }
  if (!in.beta.defined()) return fade;
  // Attention weight ∝ (ε / ε̄)^β · exp(q·k/√d), ε̄ the geometric mean of what is kept.
  const auto mean = log_innovation.masked_fill(~kept, 0).sum(1, /*keepdim=*/true) /
                    kept.sum(1, /*keepdim=*/true).clamp_min(1);
  const auto bias = widen(in.beta) * (log_innovation - mean);
  return (fade.defined() ? bias + fade : bias).masked_fill(~in.there, 0);
}

}  // namespace bmojo::nn
