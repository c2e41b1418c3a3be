#include "bmojo/realization/minimality.h"

namespace bmojo::realization {

Matrix reachability(const std::vector<Matrix>& A, const std::vector<Vector>& B) {
  const size_t order = B[0].size(), num_steps = A.size();
  Matrix out(order, num_steps);
  Matrix later = identity(order);  // A_{T-1} … A_{t+1}
  for (size_t k = 0; k < num_steps; ++k) {
    const size_t t = num_steps - 1 - k;
    const Vector reached = later * B[t];
    for (size_t i = 0; i < order; ++i) out(i, k) = reached[i];
    later = later * A[t];
  }
  return out;
}

Matrix observability(const std::vector<Matrix>& A, const std::vector<Vector>& C) {
  const size_t order = C[0].size(), num_steps = A.size();
  Matrix out(num_steps, order);
  Matrix earlier = identity(order);  // A_{t-1} … A_0
  for (size_t t = 0; t < num_steps; ++t) {
    const Vector seen = transpose(earlier) * C[t];
    for (size_t j = 0; j < order; ++j) out(t, j) = seen[j];
    earlier = A[t] * earlier;
  }
  return out;
}

Ranks ranks(const Matrix& A, const Vector& B, const Vector& C, double tolerance) {
  const std::vector<Matrix> same(A.rows, A);
  return {rank(reachability(same, std::vector<Vector>(A.rows, B)), tolerance),
          rank(observability(same, std::vector<Vector>(A.rows, C)), tolerance)};
}

}  // namespace bmojo::realization
