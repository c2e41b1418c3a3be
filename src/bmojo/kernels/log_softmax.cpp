#include "bmojo/kernels/log_softmax.h"

#include <algorithm>
#include <cmath>

#include "bmojo/kernels/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bmojo/kernels/log_softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "bmojo/kernels/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {

LogSoftmax log_softmax_of(const float* x, int64_t size) {
  const float largest = largest_of(x, size);
  const auto drop = [](int64_t, int64_t, V) BMOJO_BODY {};
  return {largest, log_of(sum_of_exponentials(x, size, largest, drop))};
}

int64_t first_of(const float* x, int64_t size, float wanted) {
  int64_t j = 0;
  while (j + kLanes <= size && hn::AllFalse(Floats(), hn::Eq(load(x + j), all(wanted))))
    j += kLanes;
  while (j < size && x[j] != wanted) ++j;
  return j < size ? j : 0;
}

int64_t most_likely_of(const float* x, int64_t size) {
  return first_of(x, size, largest_of(x, size));
}

void score(const View& x, int64_t n, int64_t size, const int64_t* target, const RowScores& out,
           const ParallelFor& parallel) {
  constexpr int64_t kRows = 8;
  run(parallel, (n + kRows - 1) / kRows, [&](int64_t task) HWY_ATTR {
    for (int64_t i = task * kRows; i < std::min(n, (task + 1) * kRows); ++i) {
      const float* row = x.data + i * x.stride;
      const LogSoftmax total = log_softmax_of(row, size);
      if (out.target) out.target[i] = total.log_p(row[target[i]]);
      if (!out.best && !out.best_log_p) continue;
      const int64_t best = std::isnan(total.log_sum) ? 0 : first_of(row, size, total.largest);
      if (out.best) out.best[i] = best;
      if (out.best_log_p) out.best_log_p[i] = total.log_p(row[best]);
    }
  });
}

}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bmojo::kernels {

HWY_EXPORT(log_softmax_of);
HWY_EXPORT(most_likely_of);
HWY_EXPORT(score);

LogSoftmax log_softmax(const float* x, int64_t V) {
  LogSoftmax out{};
  run(serial_for, 1, [&](int64_t) { out = HWY_DYNAMIC_DISPATCH(log_softmax_of)(x, V); });
  return out;
}

float log_p(const LogSoftmax& norm, float x) {
  const FloatMode mode;
  return norm.log_p(x);
}

int64_t most_likely(const float* x, int64_t V) {
  int64_t out = 0;
  run(serial_for, 1, [&](int64_t) { out = HWY_DYNAMIC_DISPATCH(most_likely_of)(x, V); });
  return out;
}

void score_rows(View x, int64_t n, int64_t V, const int64_t* target, const RowScores& out,
                const ParallelFor& parallel) {
  HWY_DYNAMIC_DISPATCH(score)(x, n, V, target, out, parallel);
}

}  // namespace bmojo::kernels
#endif
