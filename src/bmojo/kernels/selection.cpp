#include "bmojo/kernels/selection.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace bmojo::kernels {

void keep_largest(const std::vector<double>& innovation, int64_t m, std::vector<int64_t>& kept,
                  std::vector<int64_t>& scratch) {
  const auto n = std::ssize(innovation);
  kept.clear();
  if (n <= m) {
    kept.resize(static_cast<size_t>(n));
    std::iota(kept.begin(), kept.end(), 0);
    return;
  }
  const auto rank = [&](int64_t i) {
    const double x = innovation[static_cast<size_t>(i)];
    return std::isnan(x) ? -1 : x;
  };
  const auto before = [&](int64_t i, int64_t j) {
    const double a = rank(i), b = rank(j);
    return a != b ? a > b : i < j;
  };
  scratch.resize(static_cast<size_t>(n));
  std::iota(scratch.begin(), scratch.end(), 0);
  // The first that must go, in the order of preference: what comes before it stays.
  std::nth_element(scratch.begin(), scratch.begin() + m, scratch.end(), before);
  const int64_t first_out = scratch[static_cast<size_t>(m)];
  for (int64_t i = 0; i < n; ++i)
    if (before(i, first_out)) kept.push_back(i);
}

}  // namespace bmojo::kernels
