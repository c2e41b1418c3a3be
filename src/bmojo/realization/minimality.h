// Minimal is a realization whose every state can be reached from zero and told from every other by
// the outputs.
#pragma once

#include "bmojo/realization/matrix.h"

namespace bmojo::realization {

// x_{t+1} = A_t x_t + B_t u_t, over the steps 0 … T-1 that are given:
//   x_T = [B_{T-1}, A_{T-1} B_{T-2}, A_{T-1} A_{T-2} B_{T-3}, …] (u_{T-1}, u_{T-2}, …)
// Returns that matrix, [N, T].
Matrix reachability(const std::vector<Matrix>& A, const std::vector<Vector>& B);

// y_t = C_t x_t without input: the rows are C_0, C_1 A_0, C_2 A_1 A_0, …, [T, N].
Matrix observability(const std::vector<Matrix>& A, const std::vector<Vector>& C);

struct Ranks {
  size_t reachable, observable;
};

// Of a time-invariant system, over N steps.
Ranks ranks(const Matrix& A, const Vector& B, const Vector& C, double tolerance);

}  // namespace bmojo::realization
