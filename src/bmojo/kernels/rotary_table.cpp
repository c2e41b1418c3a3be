#include "bmojo/kernels/rotary_table.h"

#include <algorithm>
#include <cmath>

#include "bmojo/base/error.h"
#include "bmojo/kernels/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bmojo/kernels/rotary_table.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "bmojo/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {

using Doubles = hn::CappedTag<double, 8>;  // 4 lanes with AVX2, 8 with AVX-512
using W = hn::Vec<Doubles>;
constexpr int64_t kWideLanes = hn::MaxLanes(Doubles());

HWY_INLINE W wide(double x) { return hn::Set(Doubles(), x); }

struct SinCos {
  W sin, cos;
};

// x = n π/2 + r, |r| ≤ π/4. π/2 in two parts: x - n · (the first) is exact, since both are whole
// multiples of 2^-52 (or of what x < 1 has, where n is 0 or 1).
HWY_INLINE SinCos sin_cos(W x) {
  const hn::RebindToSigned<Doubles> di;
  // Added to 1.5·2^52, a number is rounded to a whole one, which stands in the last bits of the
  // sum.
  const W large = wide(0x1.8p52);
  const W sum = hn::MulAdd(x, wide(0x1.45f306dc9c883p-1), large);  // 2/π
  const W n = hn::Sub(sum, large);
  W r = hn::NegMulAdd(n, wide(0x1.921fb54442d18p0), x);
  r = hn::NegMulAdd(n, wide(0x1.1a62633145c07p-54), r);
  // Taylor's series; what they leave out is below 5e-17 and 3e-18.
  const W r2 = hn::Mul(r, r);
  W s = wide(-1.0 / 1307674368000), c = wide(1.0 / 20922789888000);  // 1/15!, 1/16!
  s = hn::MulAdd(s, r2, wide(1.0 / 6227020800));
  s = hn::MulAdd(s, r2, wide(-1.0 / 39916800));
  s = hn::MulAdd(s, r2, wide(1.0 / 362880));
  s = hn::MulAdd(s, r2, wide(-1.0 / 5040));
  s = hn::MulAdd(s, r2, wide(1.0 / 120));
  s = hn::MulAdd(s, r2, wide(-1.0 / 6));
  s = hn::MulAdd(hn::Mul(s, r2), r, r);
  c = hn::MulAdd(c, r2, wide(-1.0 / 87178291200));
  c = hn::MulAdd(c, r2, wide(1.0 / 479001600));
  c = hn::MulAdd(c, r2, wide(-1.0 / 3628800));
  c = hn::MulAdd(c, r2, wide(1.0 / 40320));
  c = hn::MulAdd(c, r2, wide(-1.0 / 720));
  c = hn::MulAdd(c, r2, wide(1.0 / 24));
  c = hn::MulAdd(c, r2, wide(-0.5));
  c = hn::MulAdd(c, r2, wide(1));
  // sin and cos of r + n π/2: they change places where n is odd; the sign's bit is n's second.
  const auto bits = hn::BitCast(di, sum), one = hn::Set(di, 1);
  const auto odd = hn::MaskFromVec(hn::BitCast(Doubles(), hn::Neg(hn::And(bits, one))));
  const auto sign = [&](auto n) HWY_ATTR {
    return hn::BitCast(Doubles(), hn::ShiftLeft<62>(hn::And(n, hn::Set(di, 2))));
  };
  return {hn::Xor(hn::IfThenElse(odd, c, s), sign(bits)),
          hn::Xor(hn::IfThenElse(odd, s, c), sign(hn::Add(bits, one)))};
}

HWY_INLINE void store_float(W x, float* to, int64_t count) {
  const hn::Rebind<float, Doubles> df;
  HWY_ALIGN float lanes[kWideLanes];
  hn::Store(hn::DemoteTo(df, x), df, lanes);
  std::memcpy(to, lanes, sizeof(float) * static_cast<size_t>(count));
}

void fill(const RotaryTable& in, float* cos, float* sin, const ParallelFor& parallel) {
  constexpr int64_t kTask = 4096;
  const int64_t tokens = std::max<int64_t>(1, kTask / std::max<int64_t>(1, in.half));
  run(parallel, (in.T + tokens - 1) / tokens, [&](int64_t task) HWY_ATTR {
    HWY_ALIGN double lanes[kWideLanes] = {};
    for (int64_t t = task * tokens; t < std::min(in.T, (task + 1) * tokens); ++t)
      for (int64_t j = 0; j < in.half; j += kWideLanes) {
        const int64_t count = std::min(kWideLanes, in.half - j);
        std::copy_n(in.frequency + j, count, lanes);
        const auto at =
            sin_cos(hn::Mul(wide(static_cast<double>(in.position[t])), hn::Load(Doubles(), lanes)));
        store_float(at.cos, cos + t * in.half + j, count);
        store_float(at.sin, sin + t * in.half + j, count);
      }
  });
}

}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bmojo::kernels {
namespace {

// In long double, which x86-64 computes with 64 bits after every operation: errors vanish when the
// result is rounded to double.
constexpr long double kLn2 = 0.693147180559945309417232121458176568L;

// log2 x, x > 0: the exponent, and the series of artanh for the mantissa m in [√½, √2].
long double log2_of(long double m) {
  int64_t exponent = 0;
  for (; m > 1.41421356L; m /= 2) ++exponent;
  for (; m < 0.70710678L; m *= 2) --exponent;
  const long double s = (m - 1) / (m + 1), s2 = s * s;
  long double sum = 0;
  for (int i = 31; i > 0; i -= 2) sum = sum * s2 + 1.0L / i;
  return static_cast<long double>(exponent) + 2 * s * sum / kLn2;
}

// 2^x: the nearest whole number, and Taylor's series for the rest.
long double exp2_of(long double x) {
  auto whole = static_cast<int64_t>(x < 0 ? x - 0.5L : x + 0.5L);
  const long double r = (x - static_cast<long double>(whole)) * kLn2;
  long double sum = 1;
  for (int i = 22; i > 0; --i) sum = 1 + sum * r / i;
  for (; whole > 0; --whole) sum *= 2;
  for (; whole < 0; ++whole) sum /= 2;
  return sum;
}

}  // namespace

HWY_EXPORT(fill);

std::vector<double> rotary_frequencies(int64_t half, double theta) {
  base::require(theta > 0 && std::isfinite(theta),
                "rotary_frequencies: theta must be finite and above 0, got {}", theta);
  const long double log2_theta = log2_of(theta);
  std::vector<double> out;
  for (int64_t j = 0; j < half; ++j)
    out.push_back(static_cast<double>(
        exp2_of(-log2_theta * static_cast<long double>(j) / static_cast<long double>(half))));
  return out;
}

void rotary_table(const RotaryTable& in, float* cos, float* sin, const ParallelFor& parallel) {
  HWY_DYNAMIC_DISPATCH(fill)(in, cos, sin, parallel);
}

}  // namespace bmojo::kernels
#endif
