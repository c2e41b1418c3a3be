// Is a series white? The test of Ljung and Box.
#pragma once

#include "bmojo/realization/matrix.h"

namespace bmojo::realization {

// Q(a, x) = Γ(a, x) / Γ(a): the regularised upper incomplete gamma function, for a > 0, x ≥ 0
double upper_gamma(double a, double x);

// The chance that a χ² variable with this many degrees of freedom exceeds x: Q(k / 2, x / 2)
double chi_square_survival(double x, double degrees);

// ρ_1 … ρ_m: Σ_t x_t x_{t-k} / Σ_t x_t² of the series less its mean.
Vector autocorrelations(View series, size_t num_lags);

struct LjungBox {
  double statistic;  // n (n + 2) Σ_{k=1..m} ρ_k² / (n - k)
  double p_value;    // of a white series: evenly spread over [0, 1]
};

// With m degrees of freedom. A predictor whose parameters were fitted to the series has one less
// for each of them: then p is a little too large.
LjungBox ljung_box(View residuals, size_t num_lags);

}  // namespace bmojo::realization
