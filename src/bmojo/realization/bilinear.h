// Mamba's recurrence for one channel, and what is left of it when exp(Δ A) becomes 1 + Δ A:
//
//   exact     h_t = exp(Δ_t A) ⊙ h_{t-1} + Δ_t B_t u_t        A, B_t, h [N]
//   bilinear  h_t = h_{t-1} + Δ_t (A ⊙ h_{t-1} + B_t u_t)
//
// The second is linear in the features (Δ_t, Δ_t B_t u_t) of the token and affine in the state.
#pragma once

#include "bmojo/realization/matrix.h"

namespace bmojo::realization {

Vector mamba_state(View A, double dt, View B, double u, View h);
Vector bilinear_state(View A, double dt, View B, double u, View h);

struct BilinearError {
  double step;        // δ, the length of a step
  double one_step;    // max_n |exact - bilinear| after one step
  double at_horizon;  // the same after as many steps as reach the horizon
};

// A smooth input, with Δ and B that follow it, is read at steps of δ = horizon / 2^k for each k of
// first … last. Δ_t = δ softplus(w u_t): the finer the steps, the smaller Δ.
std::vector<BilinearError> bilinear_errors(double horizon, int first, int last);

// Of a straight line through (log x, log y), by least squares.
double log_slope(View x, View y);

}  // namespace bmojo::realization
