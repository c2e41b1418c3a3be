#include "bmojo/train/backward.h"

#include <torch/torch.h>

namespace bmojo::train {

double backward(const nn::Model& model, const data::Batch& batch, const Segments& segments,
                double scale, nn::State& state) {
  nn::CallOptions call;
  call.recompute = segments.recompute;
  call.cut = segments.cut;
  call.wanted = wanted_of(model.config(), batch);
  at::Tensor total;
  for (int64_t i = 0; i < segments.count; ++i) {
    const auto part = data::columns(batch, i * segments.length, segments.length);
    call.documents = part.documents;
    auto out = model.forward(tensor_of(part, part.ids), state, call);
    state = std::move(out.state);
    const auto loss = model.loss(out.hidden, tensor_of(part, part.targets), scale);
    total = total.defined() ? total + loss : loss;
  }
  total.backward();
  state = nn::detach(state);
  return total.item<double>();
}

}  // namespace bmojo::train
