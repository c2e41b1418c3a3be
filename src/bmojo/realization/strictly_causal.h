// A state that is updated with the input of the same step, x_t = A x_{t-1} + B u_t, rewritten so
// that the state which is read holds earlier inputs only.
#pragma once

#include "bmojo/realization/diagonal_system.h"

namespace bmojo::realization {

// Time-invariant: B moves into the read-out.
//   x̂_{t+1} = a ⊙ x̂_t + u_t;  y_t = Ĉ·x̂_t + D̂ u_t;  Ĉ = c ⊙ a ⊙ b, D̂ = c·b + d
Vector strictly_causal_outputs(const DiagonalSystem& system, View u);

// Input-varying: b of earlier steps stays in the state.
//   y_t = (c_t ⊙ a_t)·x_{t-1} + (c_t·b_t + d_t) u_t;  x_t = a_t ⊙ x_{t-1} + b_t u_t
Vector strictly_causal_outputs(const VaryingSystem& systems, View u);

// The first with u_{t-1} in place of u_t, as one display of the paper has it: what passes through
// the state comes a step late.
Vector delayed_outputs(const DiagonalSystem& system, View u);

}  // namespace bmojo::realization
