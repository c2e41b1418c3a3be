// A carried state h_0 given to a scan that starts at zero, by extra steps in front.
//
//   h_t = decay_t ⊙ h_{t-1} + gain_t ⊙ x_t        h, decay, gain [E, N]; x [E], the same for all N
//
// Mamba's step is decay = exp(Δ A) and gain = Δ B, with A < 0 and Δ > 0.
#pragma once

#include "bmojo/realization/matrix.h"

namespace bmojo::realization {

struct ScanStep {
  Matrix decay, gain;  // [E, N]
  Vector x;            // [E]
};

// h after all steps.
Matrix scan(Matrix h, const std::vector<ScanStep>& steps);

// N steps that load h_0 into a state of zeros: step n has decay 1 and the input x = h_0[:, n],
// which enters state n alone.
std::vector<ScanStep> loading_steps(const Matrix& h0);

// Mamba's own step: A [E, N], B [N].
ScanStep mamba_step(const Matrix& A, double dt, View B, Vector x);

// The nearest that Mamba's step comes to loading_steps: B one-hot and 1 / Δ, so that the gain is 1.
// The decay stays below 1 for every Δ > 0, and what was loaded first has faded by exp(Δ A)^(N-1).
std::vector<ScanStep> mamba_loading_steps(const Matrix& h0, const Matrix& A, double dt);

// The same with inputs enlarged by what they are about to lose. It needs x, B and Δ that are free;
// in Mamba all three are functions of one token.
std::vector<ScanStep> compensated_loading_steps(const Matrix& h0, const Matrix& A, double dt);

}  // namespace bmojo::realization
