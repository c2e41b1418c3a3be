#include "bmojo/nn/ops/causal_conv.h"

#include <torch/torch.h>

#include "bmojo/kernels/causal_conv.h"
#include "bmojo/nn/ops/fused.h"
#include "bmojo/nn/ops/history.h"

namespace bmojo::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

enum Input { kX, kWeight, kBias, kTail, kPositions, kLengths };

// The kernel's view of saved tensors, in the order of Input.
kernels::CausalConv view(const variable_list& in) {
  return {.history = history_of(in[kX], in[kTail], in[kPositions], in[kLengths]),
          .weight = floats(in[kWeight]),
          .bias = floats(in[kBias])};
}

struct FusedConv : torch::autograd::Function<FusedConv> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                               const at::Tensor& tail, const at::Tensor& positions,
                               const std::optional<at::Tensor>& lengths, bool differentiable) {
    const variable_list in = {with_rows(x),
                              weight.contiguous(),
                              bias.has_value() ? bias->contiguous() : at::Tensor(),
                              tail.contiguous(),
                              positions.contiguous(),
                              lengths.value_or(at::Tensor())};
    const auto y = at::empty(x.sizes(), x.options()), next = at::empty(tail.sizes(), x.options());
    kernels::causal_conv1d_silu(view(in), y.data_ptr<float>(), next.data_ptr<float>(),
                                parallel_for);
    if (differentiable) context->save_for_backward(in);
    return {y, next};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    first_derivative_only("causal_conv1d_silu");
    const auto in = context->get_saved_variables();
    const auto conv = view(in);
    const auto options = in[kX].options();
    const int64_t B = conv.history.B, E = conv.history.C, K = conv.history.depth + 1;
    const auto grad_y = with_rows(grads[0]), grad_next = grads[1].contiguous();
    const auto x = at::empty(in[kX].sizes(), options), tail = at::empty(in[kTail].sizes(), options),
               weight = at::empty({B, E, 1, K}, options), bias = at::empty({B, E}, options);
    kernels::causal_conv1d_silu_backward(conv, rows_of(grad_y), floats(grad_next),
                                         {.x = x.data_ptr<float>(),
                                          .tail = tail.data_ptr<float>(),
                                          .weight = weight.data_ptr<float>(),
                                          .bias = bias.data_ptr<float>()},
                                         parallel_for);
    return {x,           weight.sum(0), in[kBias].defined() ? bias.sum(0) : at::Tensor(),
            tail,        at::Tensor(),  at::Tensor(),
            at::Tensor()};
  }
};

void check(const CausalConv& c) {
  constexpr auto kName = "causal_conv1d_silu";
  base::require(c.weight.defined() && c.weight.dim() == 3 && c.weight.numel() > 0,
                "{}: weight must be [E, 1, K], none of them 0, got {}", kName, describe(c.weight));
  check_history(kName, "x", {c.x, c.tail, c.positions, c.lengths}, c.weight.size(2) - 1);
  check_shape(kName, "weight", c.weight, {c.x.size(2), 1, c.weight.size(2)});
  check_like(kName, "weight", c.weight, c.x);
  if (!c.bias.defined()) return;
  check_shape(kName, "bias", c.bias, {c.x.size(2)});
  check_like(kName, "bias", c.bias, c.x);
}

}  // namespace

CausalConvResult causal_conv1d_silu(const CausalConv& c) {
  check(c);
  if (!use_kernel({c.x})) return causal_conv1d_silu_reference(c);
  const auto optional = [](const at::Tensor& x) {
    return x.defined() ? std::optional(x) : std::nullopt;
  };
  const auto out = FusedConv::apply(c.x, c.weight, optional(c.bias), c.tail, c.positions,
                                    optional(lengths_tensor(c.lengths)),
                                    differentiable({c.x, c.weight, c.bias, c.tail}));
  return {out[0], out[1]};
}

CausalConvResult causal_conv1d_silu_reference(const CausalConv& c) {
  const int64_t K = c.weight.size(2);
  const auto source = at::cat({c.tail, c.x}, 1);
  const auto tap = [&](int64_t i) { return c.weight.select(2, K - 1 - i).squeeze(1); };
  auto sum = tap(0) * c.x;
  if (c.bias.defined()) sum = sum + c.bias;
  for (int64_t i = 1; i < K; ++i) sum = sum + tap(i) * shifted(source, i, c.positions);
  return {without_padding(at::silu(sum), c.lengths), next_tail(source, K - 1, c.lengths)};
}

}  // namespace bmojo::nn
