#include "bmojo/nn/rotary.h"

#include <torch/torch.h>

#include "bmojo/kernels/rotary.h"
#include "bmojo/nn/fused.h"

namespace bmojo::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// cos and sin [..., d / 2] of x's type. In double until then: an angle in fp32 is off by up to
// 0.004 at position 100,000.
std::pair<at::Tensor, at::Tensor> tables(const at::Tensor& x, const at::Tensor& position,
                                         double theta) {
  const int64_t half = x.size(-1) / 2;
  const auto options = x.options().dtype(at::kDouble).requires_grad(false);
  const auto frequency = at::pow(theta, at::arange(half, options) / -static_cast<double>(half));
  const auto angle = position.unsqueeze(-1) * frequency;
  return {angle.cos().to(x.scalar_type()), angle.sin().to(x.scalar_type())};
}

at::Tensor turned(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool back) {
  const int64_t H = x.size(-2), d = x.size(-1);
  const auto rows = with_rows(x.reshape({x.numel() / (H * d), H, d}));
  const auto y = at::empty(x.sizes(), x.options());
  kernels::rotate({.T = rows.size(0),
                   .H = H,
                   .half = d / 2,
                   .x = rows_of(rows),
                   .cos = floats(cos),
                   .sin = floats(sin),
                   .back = back},
                  y.data_ptr<float>(), parallel_for);
  return y;
}

struct FusedRotary : torch::autograd::Function<FusedRotary> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin, bool differentiable) {
    if (differentiable) context->save_for_backward({cos, sin});
    return turned(x, cos, sin, /*back=*/false);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    first_derivative_only("rotate");
    const auto saved = context->get_saved_variables();
    return {turned(grads[0], saved[0], saved[1], /*back=*/true), at::Tensor(), at::Tensor(),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor rotate(const at::Tensor& x, const at::Tensor& position, double theta) {
  constexpr auto kName = "rotate";
  require(x.defined() && x.dim() >= 2 && x.size(-1) > 0 && x.size(-1) % 2 == 0 && x.size(-2) > 0,
          "{}: x must be [..., heads, d], d even, none of them 0, got {}", kName, describe(x));
  check_floating(kName, "x", x);
  check_shape(kName, "position", position, x.sizes().slice(0, static_cast<size_t>(x.dim() - 2)));
  require(position.scalar_type() == at::kLong, "{}: position must be Long, got {}", kName,
          c10::toString(position.scalar_type()));
  require(position.device() == x.device(), "{}: position must be on {}, got {}", kName,
          x.device().str(), position.device().str());
  if (!use_kernel({x})) return rotate_reference(x, position, theta);
  const auto [cos, sin] = tables(x, position, theta);
  return FusedRotary::apply(x, cos.contiguous(), sin.contiguous(), differentiable({x}));
}

at::Tensor rotate_reference(const at::Tensor& x, const at::Tensor& position, double theta) {
  const int64_t half = x.size(-1) / 2;
  const auto [cos_of, sin_of] = tables(x, position, theta);
  const auto cos = cos_of.unsqueeze(-2), sin = sin_of.unsqueeze(-2);  // [..., 1, d / 2]
  const auto a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  return at::cat({a * cos - b * sin, b * cos + a * sin}, -1);
}

}  // namespace bmojo::nn
