#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace bmojo::nn {

// Training with more places than will be used: a layer shows all its places, and those ranked
// around `places` by innovation are faded in and out, so that a token that is nearly kept or nearly
// dropped receives a gradient (docs/model.md, Learning to choose).
struct SoftCut {
  int64_t places = 0;      // that will be used, m_e; 0: no cut
  double temperature = 0;  // τ, in units of log ε
  // The level c takes part in the gradient as if it stood at a fixed distance from the mean of
  // log ε: then a factor that all ε share has none.
  bool level_moves = false;
};

struct EideticBiasInput {
  at::Tensor innovation;  // [P, m] ε of the frozen sets' members, by time
  at::Tensor there;       // [P, m] bool; false: an empty place
  at::Tensor beta;        // scalar, of the innovation bias; undefined: none
  SoftCut cut;
};

// What is added to the scores of eidetic keys, [P, m], with gradient through ε:
//
//     b_j = β (log ε_j − mean over the kept of log ε) + log σ((log ε_j − c) / τ)
//
// The kept are the cut's `places` members of the largest (ε, −position), without a cut all of them.
// c lies halfway between log ε of the last that is kept and of the next. It has no gradient, or
// with `level_moves` that of the mean of log ε over the finite members. While nothing is cut off,
// the second term is 0; as τ goes to 0, b_j goes to −∞ where j is not kept. 0 in empty places;
// undefined where nothing is added. A kernel on the CPU in fp32 without a cut.
at::Tensor eidetic_bias(const EideticBiasInput& in);

}  // namespace bmojo::nn
