#include "bmojo/nn/recompute.h"

#include <torch/torch.h>

#include "bmojo/nn/ops/fused.h"

namespace bmojo::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The tensors of a state that gradients pass through, always in this order.
std::vector<at::Tensor*> float_fields(LayerState& state) {
  std::vector<at::Tensor*> fields;
  LayerState::visit(
      state, [&](const char*, at::Tensor& x) { fields.push_back(&x); },
      [](const char*, at::Tensor&) {});
  return fields;
}

// What a run of a layer is made of, kept from the forward to the backward pass. Tensors with
// gradients are the function's own inputs and outputs and are not kept here.
struct Run : torch::CustomClassHolder {
  Run(Layer layer_, std::shared_ptr<const Layout> layout_) : layer(layer_), layout(layout_) {}
  Layer layer;
  std::shared_ptr<const Layout> layout;
  LayerCall call;
  LayerState state;    // incoming; its float fields only say which there are
  LayerOutput result;  // of the last run; cleared as soon as it is read

  // From [x, the state's float fields] to [x, innovation, the next state's]; undefined tensors are
  // left out on both sides.
  variable_list operator()(const variable_list& inputs) {
    LayerState full = state;
    size_t next_input = 1;
    for (auto* field : float_fields(full))
      if (field->defined()) *field = inputs[next_input++];
    result = layer.forward(inputs[0], *layout, full, call);
    variable_list outputs = {result.x};
    if (result.innovation.defined()) outputs.push_back(result.innovation);
    for (auto* field : float_fields(result.state))
      if (field->defined()) outputs.push_back(*field);
    return outputs;
  }
};

struct Recomputed : torch::autograd::Function<Recomputed> {
  static variable_list forward(AutogradContext* context, at::TensorList inputs,
                               const c10::intrusive_ptr<Run>& run, int64_t num_arguments) {
    context->set_materialize_grads(false);  // a state that nobody reads has no gradient
    const variable_list arguments(inputs.begin(), inputs.begin() + num_arguments);
    auto outputs = (*run)(arguments);
    // The backward pass meets the same memories, whatever a last bit would choose.
    run->call.selection = run->result.selection;
    // The parameters too: torch then notices when they change before the backward pass.
    context->save_for_backward(inputs.vec());
    context->saved_data["run"] = c10::IValue::make_capsule(run);
    context->saved_data["arguments"] = num_arguments;
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    first_derivative_only("recompute");
    const auto run =
        c10::static_intrusive_pointer_cast<Run>(context->saved_data["run"].toCapsule());
    variable_list inputs, wanted;
    const auto saved = context->get_saved_variables();
    for (int64_t i = 0; i < context->saved_data["arguments"].toInt(); ++i) {
      const auto& x = saved[static_cast<size_t>(i)];
      inputs.push_back(x.detach().requires_grad_(x.requires_grad()));
    }
    for (const auto& x : inputs)
      if (x.requires_grad()) wanted.push_back(x);
    const size_t num_arguments = wanted.size();
    for (const auto& x : run->layer.parameters())
      if (x.requires_grad()) wanted.push_back(x);
    variable_list outputs, given;
    {
      at::AutoGradMode enable(true);
      const auto again = (*run)(inputs);
      run->result = {};
      for (size_t i = 0; i < again.size(); ++i)
        if (again[i].requires_grad() && grads[i].defined()) {
          outputs.push_back(again[i]);
          given.push_back(grads[i]);
        }
    }
    const auto gradients = torch::autograd::grad(outputs, wanted, given, /*retain_graph=*/false,
                                                 /*create_graph=*/false, /*allow_unused=*/true);
    variable_list result;
    size_t next = 0;
    for (const auto& x : inputs)
      result.push_back(x.requires_grad() ? gradients[next++] : at::Tensor());
    size_t parameter = num_arguments;
    for (const auto& x : run->layer.parameters())
      result.push_back(x.requires_grad() ? gradients[parameter++] : at::Tensor());
    result.insert(result.end(), 2, at::Tensor());
    return result;
  }
};

}  // namespace

LayerOutput forward_recomputed(const Layer& layer, const at::Tensor& x,
                               const std::shared_ptr<const Layout>& layout, const LayerState& state,
                               const LayerCall& call) {
  auto run = c10::make_intrusive<Run>(layer, layout);
  run->call = call;
  run->state = state;
  variable_list inputs = {x};
  for (auto* field : float_fields(run->state)) {
    if (!field->defined()) continue;
    inputs.push_back(*field);
    *field = at::empty({0});  // the function saves it; here stands that there is one
  }
  const auto num_arguments = static_cast<int64_t>(inputs.size());
  for (const auto& parameter : layer.parameters()) inputs.push_back(parameter);
  const auto outputs = Recomputed::apply(at::TensorList(inputs), run, num_arguments);
  LayerOutput out = std::move(run->result);
  run->result = {};
  size_t next = 1;
  out.x = outputs[0];
  if (out.innovation.defined()) out.innovation = outputs[next++];
  for (auto* field : float_fields(out.state))
    if (field->defined()) *field = outputs[next++];
  return out;
}

}  // namespace bmojo::nn
