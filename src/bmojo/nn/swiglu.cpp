#include "bmojo/nn/swiglu.h"

#include <torch/torch.h>

#include "bmojo/kernels/swiglu.h"
#include "bmojo/nn/fused.h"

namespace bmojo::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

kernels::SwiGlu view(const at::Tensor& gate, const at::Tensor& up) {
  return {.R = gate.size(1), .F = gate.size(2), .gate = rows_of(gate), .up = rows_of(up)};
}

struct FusedSwiGlu : torch::autograd::Function<FusedSwiGlu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up,
                            bool differentiable) {
    const auto gate_rows = as_rows(gate), up_rows = as_rows(up);
    const auto y = at::empty(gate.sizes(), gate.options());
    kernels::swiglu(view(gate_rows, up_rows), y.data_ptr<float>(), parallel_for);
    if (differentiable) context->save_for_backward({gate_rows, up_rows});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    first_derivative_only("swiglu");
    const auto saved = context->get_saved_variables();
    const auto &gate = saved[0], &up = saved[1];
    const auto grad_y = as_rows(grads[0]);
    const auto grad_gate = at::empty(grads[0].sizes(), gate.options()),
               grad_up = at::empty(grads[0].sizes(), gate.options());
    kernels::swiglu_backward(view(gate, up), rows_of(grad_y), grad_gate.data_ptr<float>(),
                             grad_up.data_ptr<float>(), parallel_for);
    return {grad_gate, grad_up, at::Tensor()};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  constexpr auto kName = "swiglu";
  require(gate.defined() && gate.dim() > 0 && gate.size(-1) > 0,
          "{}: gate must be [..., F], F not 0, got {}", kName, describe(gate));
  check_floating(kName, "gate", gate);
  check_shape(kName, "up", up, gate.sizes());
  check_like(kName, "up", up, gate);
  if (!use_kernel({gate})) return swiglu_reference(gate, up);
  return FusedSwiGlu::apply(gate, up, differentiable({gate, up}));
}

at::Tensor swiglu_reference(const at::Tensor& gate, const at::Tensor& up) {
  return at::silu(gate) * up;
}

}  // namespace bmojo::nn
