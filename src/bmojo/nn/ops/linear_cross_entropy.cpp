#include "bmojo/nn/ops/linear_cross_entropy.h"

#include <torch/torch.h>

#include "bmojo/kernels/cross_entropy.h"
#include "bmojo/nn/ops/product.h"

namespace bmojo::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// So many logits at a time: they stay in the cache between the product and the softmax; but not
// fewer positions, or the products would mostly read and write the weight's gradient.
constexpr int64_t kLogitsAtOnce = 1 << 22, kFewestPositions = 512;

int64_t positions_at_once(int64_t vocab_size) {
  return std::max(kFewestPositions, kLogitsAtOnce / vocab_size);
}

struct FusedLoss : torch::autograd::Function<FusedLoss> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden,
                            const at::Tensor& weight, const at::Tensor& target, double scale,
                            bool to_hidden, bool to_weight) {
    const int64_t V = weight.size(0);
    const auto scored = at::nonzero(target != kUnscored).squeeze(1);
    const int64_t T = scored.size(0), step = positions_at_once(V);
    const bool every = T == target.size(0);
    const auto x = every ? hidden.contiguous() : hidden.index_select(0, scored);
    const auto wanted = every ? target.contiguous() : target.index_select(0, scored);
    const auto losses = at::empty({T}, hidden.options());
    const auto grad_x = to_hidden ? at::empty_like(x) : at::Tensor();
    auto grad_weight = to_weight ? at::empty(weight.sizes(), weight.options()) : at::Tensor();
    if (to_weight && T == 0) grad_weight.zero_();
    const auto all_logits = at::empty({std::min(step, T), V}, hidden.options());
    for (int64_t first = 0; first < T; first += step) {
      const int64_t n = std::min(step, T - first);
      auto rows = x.narrow(0, first, n), logits = all_logits.narrow(0, 0, n);
      product_into(logits, rows, weight.t());
      kernels::cross_entropy(logits.data_ptr<float>(), wanted.const_data_ptr<int64_t>() + first, n,
                             V, to_hidden || to_weight, static_cast<float>(scale),
                             losses.data_ptr<float>() + first, parallel_for);
      if (to_hidden) {
        auto out = grad_x.narrow(0, first, n);
        product_into(out, logits, weight);
      }
      if (to_weight && first == 0) product_into(grad_weight, logits.t(), rows);
      if (to_weight && first > 0) add_product(grad_weight, logits.t(), rows);
    }
    context->saved_data["hidden"] =
        to_hidden && !every ? at::zeros_like(hidden).index_copy_(0, scored, grad_x) : grad_x;
    context->saved_data["weight"] = grad_weight;
    return losses.to(at::kDouble).sum().mul(scale).to(hidden.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    first_derivative_only("linear_cross_entropy");
    base::require(context->saved_data.count("hidden") > 0,
                  "linear_cross_entropy: one backward pass must do, got a second");
    const auto factor = grads[0].item<double>();
    // Handed over, not copied.
    const auto take = [&](const char* name) {
      auto gradient = context->saved_data[name].toTensor();
      context->saved_data.erase(name);
      return gradient.defined() && factor != 1 ? gradient.mul_(factor) : gradient;
    };
    return {take("hidden"), take("weight"), {}, {}, {}, {}};
  }
};

void check(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& target) {
  constexpr auto kName = "linear_cross_entropy";
  base::require(hidden.defined() && hidden.dim() == 2, "{}: hidden must be [T, D], got {}", kName,
                describe(hidden));
  base::require(weight.defined() && weight.dim() == 2 && weight.size(0) > 0 &&
                    weight.size(1) == hidden.size(1),
                "{}: weight must be [V, {}], got {}", kName, hidden.size(1), describe(weight));
  check_floating(kName, "hidden", hidden);
  check_like(kName, "weight", weight, hidden);
  check_shape(kName, "target", target, {hidden.size(0)});
  base::require(target.scalar_type() == at::kLong, "{}: target must be Long, got {}", kName,
                c10::toString(target.scalar_type()));
  base::require(target.device() == hidden.device(), "{}: target must be on {}, got {}", kName,
                hidden.device().str(), target.device().str());
  if (!target.is_cpu() || target.numel() == 0) return;
  const auto scored = target.masked_fill(target == kUnscored, 0);
  const auto [low, high] = at::aminmax(scored);
  base::require(low.item<int64_t>() >= 0 && high.item<int64_t>() < weight.size(0),
                "{}: target must be from 0 to {}, got {} to {}", kName, weight.size(0) - 1,
                low.item<int64_t>(), high.item<int64_t>());
}

}  // namespace

int64_t loss_buffer_bytes(int64_t vocab_size) {
  return 4 * vocab_size * positions_at_once(vocab_size);
}

at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                const at::Tensor& target, double scale) {
  check(hidden, weight, target);
  if (!use_kernel({hidden})) return linear_cross_entropy_reference(hidden, weight, target, scale);
  const bool differentiable = at::GradMode::is_enabled();
  return FusedLoss::apply(hidden, weight, target, scale, differentiable && hidden.requires_grad(),
                          differentiable && weight.requires_grad());
}

at::Tensor linear_cross_entropy_reference(const at::Tensor& hidden, const at::Tensor& weight,
                                          const at::Tensor& target, double scale) {
  auto logits = at::linear(hidden, weight);
  if (logits.scalar_type() != at::kDouble) logits = logits.to(at::kFloat);
  return scale * at::cross_entropy_loss(logits, target, {}, at::Reduction::Sum, kUnscored);
}

}  // namespace bmojo::nn
