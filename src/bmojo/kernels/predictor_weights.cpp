#include "bmojo/kernels/predictor_weights.h"

namespace bmojo::kernels {

std::vector<double> predictor_weights(int64_t k, double gamma) {
  std::vector<double> c;
  double power = 1, total = 0;
  for (int64_t i = 0; i < k; ++i, power *= gamma) {
    c.push_back(power);
    total += power;
  }
  for (auto& weight : c) weight /= total;
  return c;
}

}  // namespace bmojo::kernels
