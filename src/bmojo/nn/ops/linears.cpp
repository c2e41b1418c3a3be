#include "bmojo/nn/ops/linears.h"

#include <torch/torch.h>

#include "bmojo/nn/ops/product.h"

namespace bmojo::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// With fewer rows, laying the weights side by side costs more than it saves: the copy takes as long
// as a product with some 50 rows, and saves a twentieth.
constexpr int64_t kManyRows = 2048;

// x [R, I] through the maps of one group, in columns of one array.
void append_products(const at::Tensor& x, at::TensorList group, variable_list& out) {
  int64_t width = 0;
  for (const auto& w : group) width += w.size(0);
  auto all = at::empty({x.size(0), width}, x.options());
  const bool at_once = group.size() > 1 && x.size(0) >= kManyRows;
  if (at_once) product_into(all, x, at::cat(group).t());
  int64_t first = 0;
  for (const auto& w : group) {
    auto columns = all.narrow(1, first, w.size(0));
    if (!at_once) product_into(columns, x, w.t());
    out.push_back(columns);
    first += w.size(0);
  }
}

struct Linears : torch::autograd::Function<Linears> {
  // sizes: how many of the weights belong to each group.
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               at::TensorList weights, const std::vector<int64_t>& sizes) {
    const auto rows = x.reshape({x.numel() / x.size(-1), x.size(-1)});
    // Each is kept for the gradient of the other.
    bool any_weight = false;
    for (const auto& w : weights) any_weight |= w.requires_grad();
    variable_list saved = {any_weight ? rows : at::Tensor()};
    for (const auto& w : weights) saved.push_back(x.requires_grad() ? w : at::Tensor());
    context->save_for_backward(saved);
    context->saved_data["shape"] = x.sizes();
    context->set_materialize_grads(false);
    variable_list out;
    size_t first = 0;
    for (const auto size : sizes) {
      append_products(rows, weights.slice(first, static_cast<size_t>(size)), out);
      first += static_cast<size_t>(size);
    }
    auto shape = x.sizes().vec();
    for (auto& y : out) {
      shape.back() = y.size(1);
      y = y.view(shape);
    }
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    first_derivative_only("linears");
    const auto saved = context->get_saved_variables();
    const auto shape = context->saved_data["shape"].toIntVector();
    const int64_t rows = c10::multiply_integers(shape) / shape.back();
    variable_list out(grads.size() + 2);  // x, weights, sizes
    at::Tensor to_x;
    for (size_t i = 0; i < grads.size(); ++i) {
      if (!grads[i].defined()) continue;
      const auto& weight = saved[i + 1];
      const auto grad = grads[i].reshape({rows, grads[i].size(-1)});
      if (context->needs_input_grad(i + 1)) out[i + 1] = product(grad.t(), saved[0]);
      if (!context->needs_input_grad(0)) continue;
      if (to_x.defined())
        add_product(to_x, grad, weight);
      else
        to_x = product(grad, weight);
    }
    if (to_x.defined()) out[0] = to_x.view(shape);
    return out;
  }
};

}  // namespace

std::vector<at::Tensor> linears(const at::Tensor& x,
                                const std::vector<std::vector<at::Tensor>>& groups) {
  constexpr auto kName = "linears";
  base::require(x.defined() && x.dim() > 0 && x.size(-1) > 0,
                "{}: x must be [..., I], I not 0, got {}", kName, describe(x));
  check_floating(kName, "x", x);
  std::vector<at::Tensor> weights;
  std::vector<int64_t> sizes;
  for (const auto& group : groups) {
    sizes.push_back(std::ssize(group));
    for (const auto& weight : group) {
      base::require(weight.defined() && weight.dim() == 2 && weight.size(1) == x.size(-1),
                    "{}: weight must be [O, {}], got {}", kName, x.size(-1), describe(weight));
      check_like(kName, "weight", weight, x);
      weights.push_back(weight);
    }
  }
  if (use_kernel({x}) && !weights.empty()) return Linears::apply(x, at::TensorList(weights), sizes);
  std::vector<at::Tensor> out;
  for (const auto& weight : weights) out.push_back(at::linear(x, weight));
  return out;
}

at::Tensor linear_map(const at::Tensor& x, const at::Tensor& weight) {
  return linears(x, {{weight}})[0];
}

at::Tensor linear_map(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  check_shape("linear_map", "bias", bias, {weight.size(0)});
  check_like("linear_map", "bias", bias, x);
  return use_kernel({x}) ? linear_map(x, weight) + bias : at::linear(x, weight, bias);
}

}  // namespace bmojo::nn
