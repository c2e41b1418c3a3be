// A diagonal state space model (SSM) with one input and one output, from state zero:
//
//   x_t = a ⊙ x_{t-1} + b u_t        ⊙ entry by entry; Mamba's channels are of this kind
//   y_t = c·x_t + d u_t
#pragma once

#include "bmojo/realization/matrix.h"

namespace bmojo::realization {

struct DiagonalSystem {
  Vector a, b, c;  // [N]
  double d = 0;
  size_t order() const { return a.size(); }
};

// The system of each step: input-varying where a, b, c and d are functions of u_t.
using VaryingSystem = std::vector<DiagonalSystem>;

// y for the input u.
Vector outputs(const DiagonalSystem& system, View u);
Vector outputs(const VaryingSystem& systems, View u);

// As the direct sum of N companion forms of order 1, whose last rows are a_i(u_t). Exact.
Vector direct_sum_outputs(const VaryingSystem& systems, View u);

// As one companion form of order N, whose last row at step t is the characteristic polynomial with
// the roots a_i(u_t). The same system only where a does not vary.
Vector instantaneous_companion_outputs(const VaryingSystem& systems, View u);

// Without what cannot show in the output: equal poles become one, with the sum of their residues
// b_i c_i, and poles whose residue is 0 go.
DiagonalSystem without_cancellations(const DiagonalSystem& system);

}  // namespace bmojo::realization
