// One input, one output, as a quotient of polynomials; and its companion form.
//
//              β_0 + β_1 z + … + β_{N-1} z^{N-1}
//   W(z) = D̂ + ---------------------------------
//              α_0 + α_1 z + … + z^N
#pragma once

#include <complex>

#include "bmojo/realization/diagonal_system.h"

namespace bmojo::realization {

// Coefficients by rising power.
using Polynomial = Vector;

Polynomial from_roots(View roots);  // Π_i (z - r_i)
double evaluate(const Polynomial& p, double z);

// All of them, by the simultaneous iteration of Weierstrass, Durand and Kerner.
std::vector<std::complex<double>> roots(const Polynomial& p);

struct TransferFunction {
  Polynomial numerator;    // β, [N]
  Polynomial denominator;  // α, [N + 1], the last of them 1
  double feedthrough = 0;  // D̂

  // -α_0 … -α_{N-1}
  Vector last_row() const;
};

// The poles are a_i, the residues a_i b_i c_i, and D̂ = c·b + d.
TransferFunction transfer_function(const DiagonalSystem& system);

// y for the input u, by the companion form from state zero:
//   y_t = β·x_t + D̂ u_t;  x_{t+1} = A x_t + B u_t
Vector outputs(const TransferFunction& system, View u);

}  // namespace bmojo::realization
