#include "bmojo/nn/ops/innovation.h"

#include <torch/torch.h>

#include "bmojo/kernels/innovation.h"
#include "bmojo/kernels/predictor_weights.h"
#include "bmojo/nn/ops/fused.h"
#include "bmojo/nn/ops/history.h"
#include "bmojo/nn/ops/types.h"

namespace bmojo::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

enum Input { kY, kTail, kPositions, kC, kLengths, kEpsilon };

// The kernel's view of saved tensors, in the order of Input.
kernels::Innovation view(const variable_list& in) {
  return {.history = history_of(in[kY], in[kTail], in[kPositions], in[kLengths]),
          .c = floats(in[kC])};
}

struct FusedInnovation : torch::autograd::Function<FusedInnovation> {
  static variable_list forward(AutogradContext* context, const at::Tensor& y,
                               const at::Tensor& tail, const at::Tensor& positions,
                               const at::Tensor& c, const std::optional<at::Tensor>& lengths,
                               bool differentiable) {
    variable_list in = {with_rows(y), tail.contiguous(), positions.contiguous(), c,
                        lengths.value_or(at::Tensor())};
    const auto epsilon = at::empty(positions.sizes(), y.options()),
               next = at::empty(tail.sizes(), y.options());
    kernels::innovation(view(in), epsilon.data_ptr<float>(), next.data_ptr<float>(), parallel_for);
    in.push_back(epsilon);
    if (differentiable) context->save_for_backward(in);
    return {epsilon, next};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    first_derivative_only("innovation");
    const auto in = context->get_saved_variables();
    const auto grad_epsilon = grads[0].contiguous(), grad_next = grads[1].contiguous();
    const auto y = at::empty(in[kY].sizes(), in[kY].options()),
               tail = at::empty(in[kTail].sizes(), in[kY].options());
    kernels::innovation_backward(view(in), floats(in[kEpsilon]), floats(grad_epsilon),
                                 floats(grad_next), y.data_ptr<float>(), tail.data_ptr<float>(),
                                 parallel_for);
    return {y, tail, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// √ of a mean square, with gradient 0 instead of ∞ at 0.
at::Tensor safe_sqrt(const at::Tensor& x) {
  const auto zero = x == 0;
  return x.masked_fill(zero, 1).sqrt().masked_fill(zero, 0);
}

}  // namespace

InnovationResult innovation(const Innovation& in) {
  check_history("innovation", "y", {in.y, in.tail, in.positions, in.lengths},
                std::ssize(in.coefficients));
  if (!use_kernel({in.y})) return innovation_reference(in);
  const auto lengths = lengths_tensor(in.lengths);
  const auto out = FusedInnovation::apply(
      in.y, in.tail, in.positions, torch::tensor(in.coefficients, torch::kFloat),
      lengths.defined() ? std::optional(lengths) : std::nullopt, differentiable({in.y, in.tail}));
  return {out[0], out[1]};
}

InnovationResult innovation_reference(const Innovation& in) {
  return {without_padding(safe_sqrt(prediction_error(in).square().mean(-1)), in.lengths),
          next_tail(at::cat({in.tail, in.y}, 1), std::ssize(in.coefficients), in.lengths)};
}

std::vector<double> predictor(const model::Config& config) {
  return kernels::predictor_weights(config.predictor_taps, config.predictor_decay);
}

at::Tensor prediction_error(const Innovation& in) {
  const int64_t k = std::ssize(in.coefficients);
  const auto source = at::cat({in.tail, in.y}, 1);
  auto error = widen(in.y);
  for (int64_t i = 1; i <= k; ++i)
    error = error -
            in.coefficients[static_cast<size_t>(i - 1)] * widen(shifted(source, i, in.positions));
  return error;
}

}  // namespace bmojo::nn
