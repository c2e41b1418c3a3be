// Products of rows in memory with a tile of kTile columns side by side, which is [count, kTile];
// built once for each instruction set (hence the guard). Every sum runs in order, in one
// accumulator.
#if defined(BMOJO_KERNELS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BMOJO_KERNELS_TILE_INL_H_
#undef BMOJO_KERNELS_TILE_INL_H_
#else
#define BMOJO_KERNELS_TILE_INL_H_
#endif

#include <type_traits>
#include <utility>

#include "bmojo/kernels/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {

inline constexpr int64_t kTile = 64;
inline constexpr int64_t kPanel = 2 * kLanes;             // columns at a time in registers
inline constexpr int kRowsAtOnce = kLanes == 16 ? 8 : 6;  // times kPanel: the accumulators

// Calls work(0), …, work(M - 1) with constants: what they index in an array stays in registers.
template <typename Work, int... I>
HWY_INLINE void each(std::integer_sequence<int, I...>, const Work& work) {
  (work(std::integral_constant<int, I>()), ...);
}
template <int M, typename Work>
HWY_INLINE void each(const Work& work) {
  each(std::make_integer_sequence<int, M>(), work);
}

// Eight rows of eight become columns.
using Eight = hn::Vec<hn::FixedTag<float, 8>>;
HWY_INLINE void transpose(Eight (&x)[8]) {
  const hn::FixedTag<float, 8> d;
  const hn::FixedTag<double, 4> pairs;
  Eight y[8];
  // Two rows to pairs, two pairs to four, two fours to eight.
  each<4>([&](auto i) BMOJO_BODY {
    y[2 * i] = hn::InterleaveLower(d, x[2 * i], x[2 * i + 1]);
    y[2 * i + 1] = hn::InterleaveUpper(d, x[2 * i], x[2 * i + 1]);
  });
  each<4>([&](auto i) BMOJO_BODY {
    constexpr int from = i / 2 * 4 + i % 2, to = i / 2 * 4 + i % 2 * 2;
    const auto low = hn::BitCast(pairs, y[from]), high = hn::BitCast(pairs, y[from + 2]);
    x[to] = hn::BitCast(d, hn::InterleaveLower(pairs, low, high));
    x[to + 1] = hn::BitCast(d, hn::InterleaveUpper(pairs, low, high));
  });
  each<4>([&](auto i) BMOJO_BODY {
    y[i] = hn::ConcatLowerLower(d, x[i + 4], x[i]);
    y[i + 4] = hn::ConcatUpperUpper(d, x[i + 4], x[i]);
  });
  each<8>([&](auto i) BMOJO_BODY { x[i] = y[i]; });
}

// out[m] = Σ_i rows[m][i] · columns[i], columns [count, kTile] and out [M, kTile] a panel at a
// time.
template <int M>
HWY_INLINE void row_products(const float* const* rows, const float* HWY_RESTRICT columns,
                             int64_t count, float* HWY_RESTRICT out) {
  const Floats d;
  V a[M], b[M];
  each<M>([&](auto m) BMOJO_BODY { a[m] = b[m] = zero(); });
  for (int64_t i = 0; i < count; ++i) {
    const V left = hn::Load(d, columns + i * kTile),
            right = hn::Load(d, columns + i * kTile + kLanes);
    each<M>([&](auto m) BMOJO_BODY {
      const V x = all(rows[m][i]);
      a[m] = hn::MulAdd(x, left, a[m]);
      b[m] = hn::MulAdd(x, right, b[m]);
    });
  }
  each<M>([&](auto m) BMOJO_BODY {
    hn::Store(a[m], d, out + m * kTile);
    hn::Store(b[m], d, out + m * kTile + kLanes);
  });
}

// out[m] += Σ_j rows[j][m] · weights[j], weights [count, kTile] and out [M, kTile].
template <int M>
HWY_INLINE void column_products(const float* const* rows, int64_t offset,
                                const float* HWY_RESTRICT weights, int64_t count,
                                float* HWY_RESTRICT out) {
  const Floats d;
  V a[M], b[M];
  each<M>([&](auto m) BMOJO_BODY {
    a[m] = hn::Load(d, out + m * kTile);
    b[m] = hn::Load(d, out + m * kTile + kLanes);
  });
  for (int64_t j = 0; j < count; ++j) {
    const V left = hn::Load(d, weights + j * kTile),
            right = hn::Load(d, weights + j * kTile + kLanes);
    const float* HWY_RESTRICT row = rows[j] + offset;
    each<M>([&](auto m) BMOJO_BODY {
      const V x = all(row[m]);
      a[m] = hn::MulAdd(x, left, a[m]);
      b[m] = hn::MulAdd(x, right, b[m]);
    });
  }
  each<M>([&](auto m) BMOJO_BODY {
    hn::Store(a[m], d, out + m * kTile);
    hn::Store(b[m], d, out + m * kTile + kLanes);
  });
}

// to[m] += Σ_n weights[m, n] · x[n], weights [M, kTile] and x [kTile, width] a panel at a time.
template <int M>
HWY_INLINE void add_outer(const float* HWY_RESTRICT weights, const float* HWY_RESTRICT x,
                          int64_t width, int64_t count, float* const* to, int64_t offset) {
  const Floats d;
  V a[M], b[M];
  each<M>([&](auto m) BMOJO_BODY {
    a[m] = hn::Load(d, to[m] + offset);
    b[m] = hn::Load(d, to[m] + offset + kLanes);
  });
  for (int64_t n = 0; n < count; ++n) {
    const V left = hn::Load(d, x + n * width + offset),
            right = hn::Load(d, x + n * width + offset + kLanes);
    each<M>([&](auto m) BMOJO_BODY {
      const V w = all(weights[m * kTile + n]);
      a[m] = hn::MulAdd(w, left, a[m]);
      b[m] = hn::MulAdd(w, right, b[m]);
    });
  }
  each<M>([&](auto m) BMOJO_BODY {
    hn::Store(a[m], d, to[m] + offset);
    hn::Store(b[m], d, to[m] + offset + kLanes);
  });
}

// Calls work(integral constant M, first) over [0, count), Most at a time and then the rest.
template <int Most = kRowsAtOnce, typename Work>
HWY_INLINE void in_steps(int64_t count, const Work& work) {
  int64_t i = 0;
  for (; i + Most <= count; i += Most) work(std::integral_constant<int, Most>(), i);
  each<Most - 1>([&](auto m) BMOJO_BODY {
    if (count - i == m + 1) work(std::integral_constant<int, m + 1>(), i);
  });
}

}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
