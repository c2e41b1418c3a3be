#include "bmojo/nn/ops/rotary.h"

#include <torch/torch.h>

#include "bmojo/kernels/rotary.h"
#include "bmojo/kernels/rotary_table.h"
#include "bmojo/nn/ops/fused.h"

namespace bmojo::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor turned(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool back) {
  const int64_t H = x.size(-2), d = x.size(-1);
  const auto rows = with_rows(x.reshape({1, x.numel() / (H * d), H * d}));
  const auto y = at::empty(x.sizes(), x.options());
  kernels::rotate({.T = rows.size(1),
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

Angles table_of(const at::Tensor& position, int64_t half, double theta) {
  const auto from = position.contiguous();
  auto shape = position.sizes().vec();
  shape.push_back(half);
  const auto frequency = kernels::rotary_frequencies(half, theta);
  const Angles out = {at::empty(shape, at::kFloat), at::empty(shape, at::kFloat)};
  kernels::rotary_table({.T = from.numel(),
                         .half = half,
                         .position = from.const_data_ptr<int64_t>(),
                         .frequency = frequency.data()},
                        out.cos.data_ptr<float>(), out.sin.data_ptr<float>(), parallel_for);
  return out;
}

}  // namespace

Angles rotary_angles(const at::Tensor& position, int64_t d, double theta, at::ScalarType type) {
  constexpr auto kName = "rotary_angles";
  base::require(position.defined() && position.scalar_type() == at::kLong,
                "{}: position must be Long, got {}", kName,
                position.defined() ? c10::toString(position.scalar_type()) : "none");
  base::require(d > 0 && d % 2 == 0, "{}: d must be even, got {}", kName, d);
  const int64_t half = d / 2;
  if (position.is_cpu() && type == at::kFloat && use_kernel({}))
    return table_of(position, half, theta);
  const auto options = position.options().dtype(at::kDouble);
  const auto frequency = at::pow(theta, at::arange(half, options) / -static_cast<double>(half));
  const auto angle = position.unsqueeze(-1) * frequency;
  return {angle.cos().to(type), angle.sin().to(type)};
}

at::Tensor rotate(const at::Tensor& x, const Angles& angles) {
  constexpr auto kName = "rotate";
  base::require(
      x.defined() && x.dim() >= 2 && x.size(-1) > 0 && x.size(-1) % 2 == 0 && x.size(-2) > 0,
      "{}: x must be [..., heads, d], d even, none of them 0, got {}", kName, describe(x));
  check_floating(kName, "x", x);
  auto shape = x.sizes().vec();
  shape.pop_back();
  shape.back() = x.size(-1) / 2;
  for (const auto& [name, table] : {std::pair("cos", angles.cos), {"sin", angles.sin}}) {
    check_shape(kName, name, table, shape);
    base::require(table.scalar_type() == x.scalar_type(), "{}: {} must be {}, got {}", kName, name,
                  c10::toString(x.scalar_type()), c10::toString(table.scalar_type()));
    base::require(table.device() == x.device(), "{}: {} must be on {}, got {}", kName, name,
                  x.device().str(), table.device().str());
  }
  if (!use_kernel({x})) return rotate_reference(x, angles);
  return FusedRotary::apply(x, angles.cos.contiguous(), angles.sin.contiguous(),
                            differentiable({x}));
}

at::Tensor rotate_reference(const at::Tensor& x, const Angles& angles) {
  const int64_t half = x.size(-1) / 2;
  const auto cos = angles.cos.unsqueeze(-2), sin = angles.sin.unsqueeze(-2);  // [..., 1, d / 2]
  const auto a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  return at::cat({a * cos - b * sin, b * cos + a * sin}, -1);
}

}  // namespace bmojo::nn
