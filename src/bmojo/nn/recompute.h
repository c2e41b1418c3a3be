#pragma once

#include <memory>

#include "bmojo/nn/layer.h"

namespace bmojo::nn {

// layer.forward(…) that keeps only its inputs for the backward pass and computes the rest again
// there, over the selection that was made: less memory for about a third more time.
LayerOutput forward_recomputed(const Layer& layer, const at::Tensor& x,
                               const std::shared_ptr<const Layout>& layout, const LayerState& state,
                               const LayerCall& call);

}  // namespace bmojo::nn
