#include "bmojo/kernels/cross_entropy.h"

#include <algorithm>

#include "bmojo/kernels/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bmojo/kernels/cross_entropy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "bmojo/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {

float largest_of(const float* x, int64_t size) {
  HWY_ALIGN float lanes[kLanes];
  V most = all(-std::numeric_limits<float>::infinity());
  int64_t j = 0;
  for (; j + kLanes <= size; j += kLanes) most = hn::Max(load(x + j), most);
  hn::Store(most, Floats(), lanes);
  float largest = *std::max_element(lanes, lanes + kLanes);
  for (; j < size; ++j) largest = std::max(largest, x[j]);
  return largest;
}

// One row: x becomes exp(x - largest); returns the sum, in kChains chains.
float exponentiate_row(float* x, int64_t size, float largest) {
  HWY_ALIGN float chains[kChains] = {};
  const V shift = all(largest);
  for (int64_t j = 0; j < size; j += kLanes) {
    const int64_t count = std::min<int64_t>(kLanes, size - j);
    const V e = exp2_negative(hn::Mul(hn::Sub(load(x + j, count), shift), all(kLog2E)));
    store(e, x + j, count);
    float* chain = chains + j % kChains;
    // Lanes behind the row's end hold no exponential.
    const V part = count == kLanes ? e : load(x + j, count);
    hn::Store(hn::Add(hn::Load(Floats(), chain), part), Floats(), chain);
  }
  return sum_of_chains(chains);
}

void cross_entropy_rows(float* x, const int64_t* target, int64_t n, int64_t size, bool gradient,
                        float scale, float* loss, const ParallelFor& parallel) {
  constexpr int64_t kRows = 8;
  run(parallel, (n + kRows - 1) / kRows, [&](int64_t task) HWY_ATTR {
    for (int64_t i = task * kRows; i < std::min(n, (task + 1) * kRows); ++i) {
      float* row = x + i * size;
      const float largest = largest_of(row, size), wanted = row[target[i]];
      const float sum = exponentiate_row(row, size, largest);
      loss[i] = largest + hn::GetLane(log(all(sum))) - wanted;
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
