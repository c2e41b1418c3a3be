#include "bmojo/nn/model.h"

#include <torch/torch.h>

#include <algorithm>

#include "bmojo/base/error.h"
#include "bmojo/model/init.h"
#include "bmojo/model/tensors.h"
#include "bmojo/nn/ops/linear_cross_entropy.h"
#include "bmojo/nn/ops/linears.h"
#include "bmojo/nn/ops/rows.h"
#include "bmojo/nn/recompute.h"

namespace bmojo::nn {
namespace {

const at::Tensor kNone;

at::ScalarType scalar_type(model::Dtype dtype) {
  return dtype == model::Dtype::f32    ? at::kFloat
         : dtype == model::Dtype::bf16 ? at::kBFloat16
                                       : at::kHalf;
}

}  // namespace

State detach(const State& state) {
  State out = state;
  for (auto& layer : out.layers)
    LayerState::visit(
        layer,
        [](const char*, at::Tensor& x) {
          if (x.defined()) x = x.detach();
        },
        [](const char*, at::Tensor&) {});
  return out;
}

Parameters fresh_parameters(const model::Config& config, uint64_t seed) {
  auto parameters = empty_parameters(config, at::kFloat);
  const auto specs = model::tensor_specs(config);
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto& tensor = parameters[i].second;
    model::fill_fresh(config, specs[i], seed, 0,
                      {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())});
  }
  return parameters;
}

Parameters load_parameters(const model::Checkpoint& checkpoint) {
  Parameters parameters;
  for (const auto& spec : model::tensor_specs(checkpoint.config)) {
    const auto [file, info] = checkpoint.tensors.at(spec.name, spec.shape);
    // The mapping lives as long as a tensor over it does.
    auto tensor = torch::from_blob(
        file->bytes(*info).data(), spec.shape, [keep = file->mapping()](void*) {},
        scalar_type(info->dtype));
    parameters.emplace_back(spec.name, tensor.to(at::kFloat));
  }
  return parameters;
}

Parameters empty_parameters(const model::Config& config, const at::TensorOptions& options) {
  Parameters parameters;
  for (const auto& spec : model::tensor_specs(config))
    parameters.emplace_back(spec.name, at::empty(spec.shape, options));
  return parameters;
}

// MKL chooses the code of a vector function at its first call. Two threads that share that call may
// take different code, and the bits depend on luck: so each function is called once by one thread.
static void choose_vector_functions() {
  static const bool chosen = [] {
    for (const auto type : {at::kFloat, at::kDouble})
      for (const auto function : {&at::Tensor::exp, &at::Tensor::log, &at::Tensor::cos,
                                  &at::Tensor::sin, &at::Tensor::sqrt})
        (at::ones({1}, type).*function)();
    return true;
  }();
  static_cast<void>(chosen);
}

Model::Model(model::Config config, Parameters parameters)
    : config_(std::move(config)), parameters_(std::move(parameters)) {
  choose_vector_functions();
  for (int64_t i = 0; i < config_.num_layers; ++i)
    layers_.emplace_back(config_, i, [&](const std::string& leaf) {
      return parameter(fmt::format("layers.{}.{}", i, leaf));
    });
}

const at::Tensor& Model::parameter(const std::string& name) const {
  const auto it = std::ranges::find(parameters_, name, &Parameters::value_type::first);
  return it == parameters_.end() ? kNone : it->second;
}

Output Model::forward(const at::Tensor& ids, const State& state, const CallOptions& call) const {
  base::require(ids.dim() == 2 && ids.scalar_type() == at::kLong,
                "forward: ids must be int64 [B, L], got {} with {} dimensions",
                c10::toString(ids.scalar_type()), ids.dim());
  if (!ids.is_meta() && ids.numel() > 0) {
    const auto [low, high] = at::aminmax(ids);
    base::require(low.item<int64_t>() >= 0 && high.item<int64_t>() < config_.vocab_size,
                  "forward: ids must be from 0 to {}, got {} to {}", config_.vocab_size - 1,
                  low.item<int64_t>(), high.item<int64_t>());
  }
  const auto x = take_rows(parameter("embedding.weight"), ids.flatten()).unflatten(0, ids.sizes());
  return forward_embedded(x, ids, state, call);
}

Output Model::forward_embedded(const at::Tensor& x, const at::Tensor& ids, const State& state,
                               const CallOptions& call) const {
  const Sequences sequences{x.size(0), x.size(1), call.lengths, call.documents};
  const auto layout = std::make_shared<const Layout>(config_, sequences, state.cursor, x.options());
  base::require(state.layers.empty() || state.layers.size() == layers_.size(),
                "forward: state must have {} layers, got {}", layers_.size(), state.layers.size());
  base::require(call.selections.empty() || call.selections.size() == layers_.size(),
                "forward: selections must be one a layer = {}, got {}", layers_.size(),
                call.selections.size());
  Output out{.hidden = x,
             .state = {layout->next, {}},
             .innovations = {},
             .selections = {},
             .visible = {},
             .attentions = {},
             .ssms = {},
             .layout = layout};
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto& layer = layers_[i];
    const auto before = state.layers.empty() ? layer.initial_state(x.size(0)) : state.layers[i];
    LayerCall layer_call{.tokens = ids,
                         .selection = {},
                         .cut = call.cut,
                         .keep_attention = call.keep_attention,
                         .keep_ssm = call.keep_ssm};
    if (!call.selections.empty()) {
      layer_call.selection = call.selections[i];
    } else if (!call.wanted.empty() && before.frozen.position.defined()) {
      const int64_t held = before.frozen.position.size(1);
      layer_call.selection =
          wanted_selection(*layout, call.wanted, std::max(layout->eidetic_rows, held));
    }
    auto result = call.recompute && at::GradMode::is_enabled()
                      ? forward_recomputed(layer, out.hidden, layout, before, layer_call)
                      : layer.forward(out.hidden, *layout, before, layer_call);
    out.hidden = result.x;
    out.state.layers.push_back(std::move(result.state));
    out.innovations.push_back(result.innovation);
    out.selections.push_back(result.selection);
    out.visible.push_back(result.visible);
    if (call.keep_attention) out.attentions.push_back(std::move(result.attention));
    if (call.keep_ssm) out.ssms.push_back(std::move(result.ssm));
  }
  out.hidden = rms_norm(out.hidden, parameter("norm.weight"), config_.norm_eps);
  return out;
}

const at::Tensor& Model::head() const {
  return parameter(config_.tied_embeddings ? "embedding.weight" : "head.weight");
}

at::Tensor Model::logits(const at::Tensor& hidden) const { return linear_map(hidden, head()); }

at::Tensor Model::loss(const at::Tensor& hidden, const at::Tensor& targets, double scale) const {
  return linear_cross_entropy(hidden.flatten(0, -2), head(), targets.flatten(), scale);
}

Model Model::to(const at::TensorOptions& options) const {
  Parameters moved;
  for (const auto& [name, tensor] : parameters_)
    moved.emplace_back(
        name, tensor.detach().to(options.has_device() ? options.device() : tensor.device(),
                                 options.has_dtype() ? c10::typeMetaToScalarType(options.dtype())
                                                     : tensor.scalar_type()));
  return Model(config_, std::move(moved));
}

void Model::require_gradients() {
  for (auto& [name, tensor] : parameters_) tensor.requires_grad_(true);
}

}  // namespace bmojo::nn
