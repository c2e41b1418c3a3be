#include "bmojo/nn/ops/norm.h"

#include <torch/torch.h>

#include "bmojo/kernels/norm.h"
#include "bmojo/nn/ops/fused.h"
#include "bmojo/nn/ops/types.h"

namespace bmojo::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

kernels::Norm view(const at::Tensor& x, const at::Tensor& gain, double eps) {
  return {.R = x.size(1),
          .D = x.size(2),
          .x = rows_of(x),
          .gain = floats(gain),
          .eps = static_cast<float>(eps)};
}

// Gradients to the sum and to the gain, from what the forward pass saved and gradients [..., D] to
// the norm and to the sum, either of which may be missing.
std::pair<at::Tensor, at::Tensor> gradients(AutogradContext* context, const at::Tensor& grad_norm,
                                            const at::Tensor& grad_sum) {
  if (!grad_norm.defined()) return {grad_sum, at::Tensor()};
  const auto saved = context->get_saved_variables();
  const auto x = as_rows(saved[0]), gain = saved[1], scale = saved[2];
  const auto norm = as_rows(grad_norm), sum = grad_sum.defined() ? as_rows(grad_sum) : grad_sum;
  const auto grad_x = at::empty(grad_norm.sizes(), x.options()),
             grad_gain = at::empty(gain.sizes(), x.options());
  kernels::rms_norm_backward(view(x, gain, 0), floats(scale), rows_of(norm),
                             sum.defined() ? rows_of(sum) : kernels::View{},
                             grad_x.data_ptr<float>(), grad_gain.data_ptr<float>(), parallel_for);
  return {grad_x, grad_gain};
}

struct FusedNorm : torch::autograd::Function<FusedNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gain,
                            double eps, bool differentiable) {
    const auto rows = as_rows(x), dense_gain = gain.contiguous();
    const auto norm = at::empty(x.sizes(), x.options());
    at::Tensor scale;
    if (differentiable) scale = at::empty({rows.size(1)}, x.options());
    kernels::rms_norm(view(rows, dense_gain, eps), nullptr, norm.data_ptr<float>(),
                      differentiable ? scale.data_ptr<float>() : nullptr, parallel_for);
    if (differentiable) context->save_for_backward({rows, dense_gain, scale});
    return norm;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    first_derivative_only("rms_norm");
    const auto [x, gain] = gradients(context, grads[0], {});
    return {x, gain, at::Tensor(), at::Tensor()};
  }
};

struct FusedAddedNorm : torch::autograd::Function<FusedAddedNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& y,
                               const at::Tensor& gain, double eps, bool differentiable) {
    context->set_materialize_grads(false);
    const auto rows_x = as_rows(x), rows_y = as_rows(y), dense_gain = gain.contiguous();
    const auto sum = at::empty(x.sizes(), x.options()), norm = at::empty(x.sizes(), x.options());
    at::Tensor scale;
    if (differentiable) scale = at::empty({rows_x.size(1)}, x.options());
    auto in = view(rows_x, dense_gain, eps);
    in.y = rows_of(rows_y);
    kernels::rms_norm(in, sum.data_ptr<float>(), norm.data_ptr<float>(),
                      differentiable ? scale.data_ptr<float>() : nullptr, parallel_for);
    if (differentiable) context->save_for_backward({sum, dense_gain, scale});
    return {sum, norm};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    first_derivative_only("add_rms_norm");
    const auto [x, gain] = gradients(context, grads[1], grads[0]);
    return {x, x, gain, at::Tensor(), at::Tensor()};
  }
};

void check(const char* name, const at::Tensor& x, const at::Tensor& gain) {
  base::require(x.defined() && x.dim() > 0 && x.size(-1) > 0,
                "{}: x must be [..., D], D not 0, got {}", name, describe(x));
  check_floating(name, "x", x);
  check_shape(name, "gain", gain, {x.size(-1)});
  check_like(name, "gain", gain, x);
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gain, double eps) {
  check("rms_norm", x, gain);
  if (!use_kernel({x})) return rms_norm_reference(x, gain, eps);
  return FusedNorm::apply(x, gain, eps, differentiable({x, gain}));
}

at::Tensor rms_norm_reference(const at::Tensor& x, const at::Tensor& gain, double eps) {
  const auto wide = widen(x);
  const auto scale = (wide.square().mean(-1, /*keepdim=*/true) + eps).rsqrt();
  return gain * (wide * scale).to(x.scalar_type());
}

AddedNorm add_rms_norm(const at::Tensor& x, const at::Tensor& y, const at::Tensor& gain,
                       double eps) {
  constexpr auto kName = "add_rms_norm";
  check(kName, x, gain);
  check_shape(kName, "y", y, x.sizes());
  check_like(kName, "y", y, x);
  if (!use_kernel({x})) return add_rms_norm_reference(x, y, gain, eps);
  const auto out = FusedAddedNorm::apply(x, y, gain, eps, differentiable({x, y, gain}));
  return {out[0], out[1]};
}

AddedNorm add_rms_norm_reference(const at::Tensor& x, const at::Tensor& y, const at::Tensor& gain,
                                 double eps) {
  const auto sum = x + y;
  return {sum, rms_norm_reference(sum, gain, eps)};
}

}  // namespace bmojo::nn
