#include "bmojo/nn/ops/swiglu.h"

#include <torch/torch.h>

#include "bmojo/kernels/swiglu.h"
#include "bmojo/nn/ops/product.h"

namespace bmojo::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

kernels::SwiGlu view(const at::Tensor& gate, const at::Tensor& up) {
  return {.R = gate.size(1), .F = gate.size(2), .gate = rows_of(gate), .up = rows_of(up)};
}

at::Tensor gated(const at::Tensor& gate, const at::Tensor& up) {
  const auto y = at::empty(gate.sizes(), gate.options());
  kernels::swiglu(view(gate, up), y.data_ptr<float>(), parallel_for);
  return y;
}

// Into gate and up, from the gradient of their product.
std::pair<at::Tensor, at::Tensor> gradients(const at::Tensor& gate, const at::Tensor& up,
                                            const at::Tensor& grad) {
  const auto to_gate = at::empty(gate.sizes(), gate.options()), to_up = at::empty_like(to_gate);
  kernels::swiglu_backward(view(gate, up), rows_of(grad), to_gate.data_ptr<float>(),
                           to_up.data_ptr<float>(), parallel_for);
  return {to_gate, to_up};
}

struct FusedSwiGlu : torch::autograd::Function<FusedSwiGlu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up,
                            bool differentiable) {
    const auto gate_rows = as_rows(gate), up_rows = as_rows(up);
    if (differentiable) context->save_for_backward({gate_rows, up_rows});
    return gated(gate_rows, up_rows).view(gate.sizes());
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    first_derivative_only("swiglu");
    const auto saved = context->get_saved_variables();
    const auto [gate, up] = gradients(saved[0], saved[1], as_rows(grads[0]));
    return {gate.view(grads[0].sizes()), up.view(grads[0].sizes()), at::Tensor()};
  }
};

struct FusedSwiGluLinear : torch::autograd::Function<FusedSwiGluLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up,
                            const at::Tensor& weight, bool differentiable) {
    const auto gate_rows = as_rows(gate), up_rows = as_rows(up);
    if (differentiable) {
      context->save_for_backward({gate_rows, up_rows, weight});
      context->saved_data["shape"] = gate.sizes();
    }
    auto shape = gate.sizes().vec();
    shape.back() = weight.size(0);
    // What stays is allocated before what goes: the heap would keep the gap.
    const auto y = at::empty(shape, gate.options());
    auto rows = y.view({gate_rows.size(1), weight.size(0)});
    product_into(rows, gated(gate_rows, up_rows)[0], weight.t());
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    first_derivative_only("swiglu_linear");
    const auto saved = context->get_saved_variables();
    const auto &gate = saved[0], &up = saved[1], &weight = saved[2];
    const auto shape = context->saved_data["shape"].toIntVector();
    const auto grad = grads[0].reshape({gate.size(1), weight.size(0)});
    at::Tensor to_weight;
    if (context->needs_input_grad(2)) {
      to_weight = at::empty(weight.sizes(), weight.options());
      product_into(to_weight, grad.t(), gated(gate, up)[0]);
    }
    const auto [to_gate, to_up] = gradients(gate, up, product(grad, weight).unsqueeze(0));
    return {to_gate.view(shape), to_up.view(shape), to_weight, at::Tensor()};
  }
};

void check(const char* name, const at::Tensor& gate, const at::Tensor& up) {
  base::require(gate.defined() && gate.dim() > 0 && gate.size(-1) > 0,
                "{}: gate must be [..., F], F not 0, got {}", name, describe(gate));
  check_floating(name, "gate", gate);
  check_shape(name, "up", up, gate.sizes());
  check_like(name, "up", up, gate);
}

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  check("swiglu", gate, up);
  if (!use_kernel({gate})) return swiglu_reference(gate, up);
  return FusedSwiGlu::apply(gate, up, differentiable({gate, up}));
}

at::Tensor swiglu_linear(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& weight) {
  constexpr auto kName = "swiglu_linear";
  check(kName, gate, up);
  base::require(weight.defined() && weight.dim() == 2 && weight.size(1) == gate.size(-1),
                "{}: weight must be [D, {}], got {}", kName, gate.size(-1), describe(weight));
  check_like(kName, "weight", weight, gate);
  if (!use_kernel({gate})) return at::linear(swiglu_reference(gate, up), weight);
  return FusedSwiGluLinear::apply(gate, up, weight, differentiable({gate, up, weight}));
}

at::Tensor swiglu_reference(const at::Tensor& gate, const at::Tensor& up) {
  return at::silu(gate) * up;
}

}  // namespace bmojo::nn
