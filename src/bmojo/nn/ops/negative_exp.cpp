#include "bmojo/nn/ops/negative_exp.h"

#include <torch/torch.h>

#include "bmojo/kernels/negative_exp.h"
#include "bmojo/nn/ops/fused.h"

namespace bmojo::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct FusedNegativeExp : torch::autograd::Function<FusedNegativeExp> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& a_log,
                            bool differentiable) {
    const auto from = a_log.contiguous(), A = at::empty(a_log.sizes(), a_log.options());
    kernels::negative_exp(floats(from), from.numel(), A.data_ptr<float>());
    if (differentiable) context->save_for_backward({A});
    return A;
  }

  // dA / dA_log = A
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    first_derivative_only("negative_exp");
    return {grads[0] * context->get_saved_variables()[0], at::Tensor()};
  }
};

}  // namespace

at::Tensor negative_exp(const at::Tensor& a_log) {
  if (!use_kernel({a_log})) return -widen(a_log).exp();
  return FusedNegativeExp::apply(a_log, differentiable({a_log}));
}

}  // namespace bmojo::nn
