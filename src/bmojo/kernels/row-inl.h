// Loops and sums over a row of numbers, built once for each instruction set (hence the guard).
#if defined(BMOJO_KERNELS_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BMOJO_KERNELS_ROW_INL_H_
#undef BMOJO_KERNELS_ROW_INL_H_
#else
#define BMOJO_KERNELS_ROW_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>

#include "bmojo/kernels/simd-inl.h"

// A loop's body, as a lambda: inlined even where it is used twice, so that whole vectors do not ask
// how many lanes they have.
#ifndef BMOJO_BODY
#define BMOJO_BODY HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {

static_assert(kLanes == kChains || 2 * kLanes == kChains);

// body(i, count): elements [i, i + count) of a row of n, a vector at a time.
template <typename Body>
HWY_INLINE void over_row(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, n - i);
}

// Begins to load `n` numbers that are needed soon. Where a task owns a few channels of every token,
// its rows are a few cache lines each and far apart, and processors do not foresee them. (Inlined
// by force: GCC drops calls of functions that do nothing else.)
HWY_INLINE void prefetch(const float* row, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) hwy::Prefetch(row + i);
}

// The sum that term(i, count, sum) adds to, in kChains chains: element i is of chain i mod kChains,
// whatever the vector width.
template <typename Term>
HWY_INLINE float sum_over_row(int64_t n, const Term& term) {
  V low = zero(), high = zero();
  int64_t i = 0;
  for (; i + kChains <= n; i += kChains) {
    low = term(i, kLanes, low);
    if constexpr (kLanes < kChains) high = term(i + kLanes, kLanes, high);
  }
  if (i < n) {
    // Half of the chains may have no element left: they add the zeros that a wider vector would.
    low = term(i, std::min(kLanes, n - i), low);
    if constexpr (kLanes < kChains)
      high = term(i + kLanes, std::max<int64_t>(0, n - i - kLanes), high);
  }
  HWY_ALIGN float chains[2 * kLanes];
  hn::Store(low, Floats(), chains);
  hn::Store(high, Floats(), chains + kLanes);
  return sum_of_chains(chains);
}

HWY_INLINE float square_root(float x) { return hn::GetLane(hn::Sqrt(all(x))); }

HWY_INLINE V silu(V x) { return hn::Mul(x, sigmoid(x)); }
}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
