// The softmax of a row of logits, built once for each instruction set (hence the guard).
#if defined(BMOJO_KERNELS_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BMOJO_KERNELS_SOFTMAX_INL_H_
#undef BMOJO_KERNELS_SOFTMAX_INL_H_
#else
#define BMOJO_KERNELS_SOFTMAX_INL_H_
#endif

#include <algorithm>

#include "bmojo/kernels/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {

// NaN counts as less than every number.
HWY_INLINE float largest_of(const float* x, int64_t size) {
  HWY_ALIGN float lanes[kLanes];
  V most = all(-std::numeric_limits<float>::infinity());
  int64_t j = 0;
  for (; j + kLanes <= size; j += kLanes) most = hn::Max(load(x + j), most);
  hn::Store(most, Floats(), lanes);
  float largest = *std::max_element(lanes, lanes + kLanes);
  for (; j < size; ++j) largest = std::max(largest, x[j]);
  return largest;
}

// e_j = exp(x_j - largest) for one row; each vector of them goes to keep(j, count, e). Returns
// their sum, in kChains chains.
template <typename Keep>
HWY_INLINE float sum_of_exponentials(const float* x, int64_t size, float largest,
                                     const Keep& keep) {
  const V shift = all(largest);
  return sum_over_row(size, [&](int64_t j, int64_t count, V sum) BMOJO_BODY {
    const V e = exp2_negative(hn::Mul(hn::Sub(load(x + j, count), shift), all(kLog2E)));
    keep(j, count, e);
    // Lanes behind the row's end hold no exponential.
    return hn::Add(sum, count == kLanes ? e : hn::IfThenElseZero(hn::FirstN(Floats(), count), e));
  });
}

HWY_INLINE float log_of(float x) { return hn::GetLane(log(all(x))); }

}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
