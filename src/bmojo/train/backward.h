#pragma once

#include "bmojo/nn/model.h"
#include "bmojo/train/source.h"

namespace bmojo::train {

// Tokens of a call, calls that one gradient goes back through, whether what the backward pass needs
// is kept or computed again, and how eidetic places are cut back.
struct Segments {
  int64_t length = 0, count = 0;
  bool recompute = false;
  nn::SoftCut cut = {};
};

// The loss of a batch, times `scale`, its gradients added to those of the weights. Segments go one
// after the other, the memories carried along: gradients flow through all of them and end at the
// state that was carried in.
double backward(const nn::Model& model, const data::Batch& batch, const Segments& segments,
                double scale, nn::State& state);

}  // namespace bmojo::train
