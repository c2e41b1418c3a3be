#include "bmojo/kernels/cross_entropy.h"

#include <algorithm>

#include "bmojo/kernels/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bmojo/kernels/cross_entropy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "bmojo/kernels/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {

void cross_entropy_rows(float* x, const int64_t* target, int64_t n, int64_t size, bool gradient,
                        float scale, float* loss, const ParallelFor& parallel) {
  constexpr int64_t kRows = 8;
  run(parallel, (n + kRows - 1) / kRows, [&](int64_t task) HWY_ATTR {
    for (int64_t i = task * kRows; i < std::min(n, (task + 1) * kRows); ++i) {
      float* row = x + i * size;
      const float largest = largest_of(row, size), wanted = row[target[i]];
      const float sum = sum_of_exponentials(row, size, largest,
                                            [&](int64_t j, int64_t count, V e)
                                                BMOJO_BODY { store(e, row + j, count); });
      loss[i] = log_of(sum) - (wanted - largest);
      if (!gradient) continue;
      const V factor = all(scale / sum);
      for (int64_t j = 0; j < size; j += kLanes) {
        const int64_t count = std::min<int64_t>(kLanes, size - j);
        store(hn::Mul(load(row + j, count), factor), row + j, count);
      }
      row[target[i]] -= scale;
    }
  });
}

}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bmojo::kernels {

HWY_EXPORT(cross_entropy_rows);

void cross_entropy(float* x, const int64_t* target, int64_t n, int64_t V, bool gradient,
                   float scale, float* loss, const ParallelFor& parallel) {
  HWY_DYNAMIC_DISPATCH(cross_entropy_rows)(x, target, n, V, gradient, scale, loss, parallel);
}

}  // namespace bmojo::kernels
#endif
