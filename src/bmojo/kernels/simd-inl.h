// Vector functions that the kernels share, built once for each instruction set (hence the guard).
// Every product that is added is a MulAdd and no sum is left to the library's order, so a lane
// gives the same bits on every width.
#if defined(BMOJO_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BMOJO_KERNELS_SIMD_INL_H_
#undef BMOJO_KERNELS_SIMD_INL_H_
#else
#define BMOJO_KERNELS_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;  // 8 lanes with AVX2, 16 with AVX-512
using V = hn::Vec<Floats>;
inline constexpr int64_t kLanes = hn::MaxLanes(Floats());
// Sums over a row run in this many chains, whatever the vector width.
inline constexpr int64_t kChains = 16;

HWY_INLINE V zero() { return hn::Zero(Floats()); }
HWY_INLINE V all(float x) { return hn::Set(Floats(), x); }
HWY_INLINE V load(const float* p) { return hn::LoadU(Floats(), p); }
HWY_INLINE void store(V x, float* p) { hn::StoreU(x, Floats(), p); }

// The first `count` lanes; no memory behind them is touched. The others read as 0.
HWY_INLINE V load(const float* p, int64_t count) {
  if (count >= kLanes) return load(p);
  HWY_ALIGN float lanes[kLanes] = {};
  std::memcpy(lanes, p, sizeof(float) * static_cast<size_t>(count));
  return hn::Load(Floats(), lanes);
}
HWY_INLINE void store(V x, float* p, int64_t count) {
  if (count >= kLanes) return store(x, p);
  HWY_ALIGN float lanes[kLanes];
  hn::Store(x, Floats(), lanes);
  std::memcpy(p, lanes, sizeof(float) * static_cast<size_t>(count));
}

using I = hn::Vec<hn::RebindToSigned<Floats>>;

// The whole number nearest to x, the even one of two, as float and as integer; |x| < 2^22. Added to
// 1.5·2^23, x is rounded to a whole number, which then stands in the last bits of the sum.
struct Nearest {
  V whole;
  I number;
};
HWY_INLINE Nearest nearest(V x) {
  const hn::RebindToSigned<Floats> di;
  const V large = all(12582912.0f), sum = hn::Add(x, large);
  return {hn::Sub(sum, large), hn::Sub(hn::BitCast(di, sum), hn::BitCast(di, large))};
}

// 2^n for n in [-126, 127], 0 for -127.
HWY_INLINE V power_of_two(I n) {
  const hn::RebindToSigned<Floats> di;
  return hn::BitCast(Floats(), hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

// 2^x = power (1 + rest) for x ≤ 0 (up to 127 in fact): power is a power of two, or 0 below 2^-126,
// and rest keeps what 1 + rest would round away. NaN for NaN. |relative error| < 2e-7.
struct Exp2 {
  V power, rest;
};
HWY_INLINE Exp2 exp2_parts(V x) {
  // The second operand wins when one is NaN.
  x = hn::Max(all(-127.0f), x);
  // As in `nearest`, but with the exponent's bias in the sum (so that the odd one of two is taken):
  // its last bits are the power's first.
  const V large = all(12582912.0f + 127), sum = hn::Add(x, large);
  const auto bits = hn::ShiftLeft<23>(hn::BitCast(hn::RebindToSigned<Floats>(), sum));
  const V f = hn::Sub(x, hn::Sub(sum, large));  // exact, in [-1/2, 1/2]
  V p = all(1.5403530e-4f);                     // ln2^i / i!
  p = hn::MulAdd(p, f, all(1.3333558e-3f));
  p = hn::MulAdd(p, f, all(9.6181291e-3f));
  p = hn::MulAdd(p, f, all(5.5504109e-2f));
  p = hn::MulAdd(p, f, all(2.4022651e-1f));
  p = hn::MulAdd(p, f, all(6.9314718e-1f));
  return {hn::BitCast(Floats(), bits), hn::Mul(p, f)};
}
HWY_INLINE V exp2_negative(V x) {
  const auto [power, rest] = exp2_parts(x);
  return hn::MulAdd(power, rest, power);
}

inline constexpr float kLog2E = 1.44269504f;

// e^x: 0 below -87.3, +∞ above 88.7, NaN for NaN. ln 2 is taken off in two parts, so that the
// relative error stays below 3e-7 over the whole range.
HWY_INLINE V exp(V x) {
  const V high = all(88.7228f), low = all(-87.3365f);
  const V bounded = hn::Max(low, hn::Min(high, x));
  const auto [whole, number] = nearest(hn::Mul(bounded, all(kLog2E)));
  V r = hn::NegMulAdd(whole, all(0.693145752f), bounded);
  r = hn::NegMulAdd(whole, all(1.42860677e-6f), r);
  V p = all(1.3888889e-3f);
  p = hn::MulAdd(p, r, all(8.3333333e-3f));
  p = hn::MulAdd(p, r, all(4.1666667e-2f));
  p = hn::MulAdd(p, r, all(1.6666667e-1f));
  p = hn::MulAdd(p, r, all(0.5f));
  p = hn::MulAdd(p, r, all(1.0f));
  p = hn::MulAdd(p, r, all(1.0f));
  // 2^whole in two factors: whole may be 128.
  const I half = hn::ShiftRight<1>(number);
  V y = hn::Mul(hn::Mul(p, power_of_two(half)), power_of_two(hn::Sub(number, half)));
  y = hn::IfThenElse(hn::Lt(x, low), zero(), y);
  y = hn::IfThenElse(hn::Gt(x, high), all(std::numeric_limits<float>::infinity()), y);
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// ln x for normal x > 0: the exponent, and a series in s = (m - 1) / (m + 1) for the mantissa
// m in [√½, √2).
HWY_INLINE V log(V x) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const auto bits = hn::BitCast(di, x);
  // Offset by √½, so that the exponent counts from there.
  const auto shifted = hn::Sub(bits, hn::Set(di, 0x3F3504F3));
  const auto exponent = hn::ShiftRight<23>(shifted);
  const V m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(exponent)));
  const V e = hn::ConvertTo(d, exponent);
  const V s = hn::Div(hn::Sub(m, all(1)), hn::Add(m, all(1)));
  const V s2 = hn::Mul(s, s);
  V p = all(2.0f / 9);
  p = hn::MulAdd(p, s2, all(2.0f / 7));
  p = hn::MulAdd(p, s2, all(2.0f / 5));
  p = hn::MulAdd(p, s2, all(2.0f / 3));
  p = hn::MulAdd(p, s2, all(2.0f));
  V y = hn::MulAdd(e, all(1.42860677e-6f), hn::Mul(s, p));
  y = hn::MulAdd(e, all(0.693145752f), y);
  return hn::IfThenElse(hn::Lt(x, all(std::numeric_limits<float>::infinity())), y,
                        x);  // ∞ and NaN
}

// ln(1 + x), x ≥ 0: what 1 + x rounds away is given back.
HWY_INLINE V log1p(V x) {
  const V y = hn::Add(x, all(1));
  const V lost = hn::Sub(x, hn::Sub(y, all(1)));
  return hn::IfThenElse(hn::Lt(y, all(1e30f)), hn::Add(log(y), hn::Div(lost, y)), log(y));
}

HWY_INLINE V sigmoid(V x) { return hn::Div(all(1), hn::Add(all(1), exp(hn::Neg(x)))); }

// d silu = σ (1 + x (1 - σ)), σ = sigmoid(x)
HWY_INLINE V silu_slope(V x, V sigma) {
  return hn::Mul(sigma, hn::MulAdd(x, hn::Sub(all(1), sigma), all(1)));
}

HWY_INLINE V softplus(V x) { return hn::IfThenElse(hn::Gt(x, all(20)), x, log1p(exp(x))); }

// The sum of kChains numbers, as a tree.
HWY_INLINE float sum_of_chains(const float* x) {
  float s[8];
  for (int i = 0; i < 8; ++i) s[i] = x[i] + x[i + 8];
  for (int i = 0; i < 4; ++i) s[i] += s[i + 4];
  return (s[0] + s[2]) + (s[1] + s[3]);
}

}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
