// Rows and columns side by side, and the products of a tile of them over a block of k; built once
// for each instruction set (hence the guard). Both products (product.h, packed_product.h) are made
// of these, so their sums have one order.
#if defined(BMOJO_KERNELS_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BMOJO_KERNELS_PANEL_INL_H_
#undef BMOJO_KERNELS_PANEL_INL_H_
#else
#define BMOJO_KERNELS_PANEL_INL_H_
#endif

#include "bmojo/kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {

inline constexpr int64_t kDepth = 512;  // of a block, in k

// Eight numbers of kCount lines, side by side: out[k, i] = x(i, k). Of each k all eight places are
// written, in order.
template <int64_t kCount>
HWY_INLINE void pack_eight(const float* HWY_RESTRICT x, int64_t line, float* HWY_RESTRICT out,
                           int64_t stride) {
  const hn::FixedTag<float, 8> d;
  Eight lines[8];
  each<8>([&](auto i)
              BMOJO_BODY { lines[i] = i < kCount ? hn::LoadU(d, x + i * line) : hn::Zero(d); });
  transpose(lines);
  each<8>([&](auto k) BMOJO_BODY { hn::StoreU(lines[k], d, out + k * stride); });
}

// Lines of x side by side, in strips of W: out[strip, k, i] = x(strip · W + i, k), 0 behind the
// last. A line is `line` from the next, its elements are `step` apart. Up to 2 numbers behind out
// are written.
template <int64_t W>
void pack(const float* HWY_RESTRICT x, int64_t line, int64_t step, int64_t lines, int64_t depth,
          float* HWY_RESTRICT out) {
  int64_t whole = 0;
  if (line == 1) {
    whole = lines / W * W;
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t i = 0; i < whole; i += W)
        std::memcpy(out + i * depth + k * W, x + k * step + i, sizeof(float) * W);
  } else if (step == 1) {
    constexpr int64_t kGroup = std::min<int64_t>(W, 8);
    whole = lines / W * W;
    for (int64_t i = 0; i < whole; i += W) {
      int64_t k = 0;
      for (; k + 8 <= depth; k += 8)
        for (int64_t g = 0; g < W; g += 8)
          pack_eight<kGroup>(x + (i + g) * line + k, line, out + i * depth + k * W + g, W);
      for (; k < depth; ++k)
        for (int64_t j = 0; j < W; ++j) out[i * depth + k * W + j] = x[(i + j) * line + k];
    }
  }
  for (; whole < lines; whole += W)
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t i = 0; i < W; ++i)
        out[whole * depth + k * W + i] =
            whole + i < lines ? x[(whole + i) * line + k * step] : 0.0f;
}

// Weights as floats; bf16 is the upper half of one.
HWY_INLINE V widened(const float* p) { return hn::Load(Floats(), p); }
HWY_INLINE V widened(const uint16_t* p) {
  const hn::Rebind<uint16_t, Floats> half;
  const hn::RebindToUnsigned<Floats> whole;
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(whole, hn::Load(half, p))));
}

// Where the left factor of row m lies: kRowsAtOnce rows side by side, or each on its own.
struct Strip {
  const float* HWY_RESTRICT data;
  HWY_INLINE float operator()(int m, int64_t k) const { return data[k * kRowsAtOnce + m]; }
};
struct LeftRows {
  const float* HWY_RESTRICT data;
  int64_t stride;
  HWY_INLINE float operator()(int m, int64_t k) const { return data[m * stride + k]; }
};

// out [kRows, kVectors · kLanes] (+)= left · panel over a block of k. A panel has kStep columns;
// those beyond are of the next one, `next` weights behind it.
template <bool kAdd, int kRows, int kVectors, int64_t kStep, typename Left, typename Weight>
HWY_INLINE void multiply_block(const Left& left, const Weight* HWY_RESTRICT panel, int64_t depth,
                               float* HWY_RESTRICT out, int64_t stride, int64_t next = 0) {
  V sums[kVectors][kRows], weights[kVectors];
  each<kRows>([&](auto m) BMOJO_BODY {
    each<kVectors>([&](auto c) BMOJO_BODY { sums[c][m] = zero(); });
    prefetch(out + m * stride, kVectors * kLanes);
    hwy::Prefetch(out + m * stride + kVectors * kLanes - 1);
  });
#pragma GCC unroll 4
  for (int64_t k = 0; k < depth; ++k) {
    each<kVectors>([&](auto c) BMOJO_BODY {
      constexpr int64_t column = c * kLanes;
      weights[c] = widened(panel + column / kStep * next + k * kStep + column % kStep);
    });
    each<kRows>([&](auto m) BMOJO_BODY {
      const V x = all(left(m, k));
      each<kVectors>([&](auto c)
                         BMOJO_BODY { sums[c][m] = hn::MulAdd(x, weights[c], sums[c][m]); });
    });
  }
  each<kRows>([&](auto m) BMOJO_BODY {
    each<kVectors>([&](auto c) BMOJO_BODY {
      float* to = out + m * stride + c * kLanes;
      store(kAdd ? hn::Add(load(to), sums[c][m]) : sums[c][m], to);
    });
  });
}

// The same for a tile that may be cut off at the end of out.
template <int kRows, int kVectors, int64_t kStep, typename Left, typename Weight>
HWY_INLINE void multiply_cut(const Left& left, const Weight* panel, int64_t depth, float* out,
                             int64_t stride, int64_t rows, int64_t columns, bool add,
                             int64_t next = 0) {
  constexpr int64_t kColumns = kVectors * kLanes;
  if (rows >= kRows && columns >= kColumns)
    return add ? multiply_block<true, kRows, kVectors, kStep>(left, panel, depth, out, stride, next)
               : multiply_block<false, kRows, kVectors, kStep>(left, panel, depth, out, stride,
                                                               next);
  HWY_ALIGN float tile[kRows * kColumns];
  multiply_block<false, kRows, kVectors, kStep>(left, panel, depth, tile, kColumns, next);
  for (int64_t m = 0; m < std::min<int64_t>(rows, kRows); ++m)
    for (int64_t n = 0; n < std::min(columns, kColumns); ++n) {
      float& to = out[m * stride + n];
      to = add ? to + tile[m * kColumns + n] : tile[m * kColumns + n];
    }
}

}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
