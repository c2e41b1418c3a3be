#include "bmojo/kernels/norm.h"

#include <algorithm>
#include <vector>

#include "bmojo/kernels/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bmojo/kernels/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "bmojo/kernels/row-inl.h"

// A row is summed, then scaled while the first cache still has it. A task owns kRowBlock rows.

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {

// The gradient to the gain is summed within a block, then over blocks.
inline constexpr int64_t kRowBlock = 64;
inline constexpr int64_t kColumnBlock = 256;

inline int64_t blocks_of(int64_t n, int64_t size) { return (n + size - 1) / size; }

HWY_INLINE float sum_of_squares(const float* HWY_RESTRICT x, int64_t D) {
  return sum_over_row(D, [&](int64_t i, int64_t count, V sum) BMOJO_BODY {
    const V value = load(x + i, count);
    return hn::MulAdd(value, value, sum);
  });
}

HWY_INLINE void add(const float* HWY_RESTRICT x, const float* HWY_RESTRICT y,
                    float* HWY_RESTRICT sum, int64_t D) {
  over_row(D, [&](int64_t i, int64_t count) BMOJO_BODY {
    store(hn::Add(load(x + i, count), load(y + i, count)), sum + i, count);
  });
}

void forward(const Norm& in, float* sum, float* norm, float* scales, const ParallelFor& parallel) {
  run(parallel, blocks_of(in.R, kRowBlock), [&](int64_t block) HWY_ATTR {
    const int64_t end = std::min(in.R, (block + 1) * kRowBlock);
    for (int64_t r = block * kRowBlock; r < end; ++r) {
      const float* x = in.x.data + r * in.x.stride;
      if (in.y.data != nullptr) {
        add(x, in.y.data + r * in.y.stride, sum + r * in.D, in.D);
        x = sum + r * in.D;
      }
      const float mean = sum_of_squares(x, in.D) / static_cast<float>(in.D);
      const float scale = 1.0f / square_root(mean + in.eps);
      if (scales != nullptr) scales[r] = scale;
      float* HWY_RESTRICT out = norm + r * in.D;
      over_row(in.D, [&](int64_t i, int64_t count) BMOJO_BODY {
        const V value = hn::Mul(load(x + i, count), all(scale));
        store(hn::Mul(load(in.gain + i, count), value), out + i, count);
      });
    }
  });
}

// With x̂ = s · scale and h = grad ⊙ gain: grad_s = scale (h - x̂ mean(h ⊙ x̂)), grad_gain = grad ⊙ x̂.
template <bool kAdds>
void row_back(const Norm& in, const float* HWY_RESTRICT x, float scale,
              const float* HWY_RESTRICT grad, const float* HWY_RESTRICT grad_sum,
              float* HWY_RESTRICT grad_x, float* HWY_RESTRICT grad_gain) {
  const float* HWY_RESTRICT gain = in.gain;
  const float mean =
      sum_over_row(in.D,
                   [&](int64_t i, int64_t count, V sum) BMOJO_BODY {
                     const V h = hn::Mul(load(grad + i, count), load(gain + i, count));
                     return hn::MulAdd(h, hn::Mul(load(x + i, count), all(scale)), sum);
                   }) /
      static_cast<float>(in.D);
  over_row(in.D, [&](int64_t i, int64_t count) BMOJO_BODY {
    const V g = load(grad + i, count), unit = hn::Mul(load(x + i, count), all(scale));
    const V rest = hn::NegMulAdd(unit, all(mean), hn::Mul(g, load(gain + i, count)));
    const V out =
        kAdds ? hn::MulAdd(rest, all(scale), load(grad_sum + i, count)) : hn::Mul(rest, all(scale));
    store(out, grad_x + i, count);
    store(hn::MulAdd(g, unit, load(grad_gain + i, count)), grad_gain + i, count);
  });
}

void backward(const Norm& in, const float* scales, const View& grad_norm, const View& grad_sum,
              float* grad_x, float* grad_gain, const ParallelFor& parallel) {
  const int64_t D = in.D, blocks = blocks_of(in.R, kRowBlock);
  std::vector<float> gains(static_cast<size_t>(blocks * D));
  run(parallel, blocks, [&](int64_t block) HWY_ATTR {
    const int64_t end = std::min(in.R, (block + 1) * kRowBlock);
    float* gain = gains.data() + block * D;
    for (int64_t r = block * kRowBlock; r < end; ++r) {
      const float *x = in.x.data + r * in.x.stride, *grad = grad_norm.data + r * grad_norm.stride;
      if (grad_sum.data == nullptr)
        row_back<false>(in, x, scales[r], grad, nullptr, grad_x + r * D, gain);
      else
        row_back<true>(in, x, scales[r], grad, grad_sum.data + r * grad_sum.stride, grad_x + r * D,
                       gain);
    }
  });
  run(parallel, blocks_of(D, kColumnBlock), [&](int64_t task) {
    const int64_t first = task * kColumnBlock, end = std::min(D, first + kColumnBlock);
    std::fill(grad_gain + first, grad_gain + end, 0.0f);
    for (int64_t block = 0; block < blocks; ++block)
      for (int64_t i = first; i < end; ++i)
        grad_gain[i] += gains[static_cast<size_t>(block * D + i)];
  });
}

}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bmojo::kernels {

HWY_EXPORT(forward);
HWY_EXPORT(backward);

void rms_norm(const Norm& in, float* sum, float* norm, float* scale, const ParallelFor& parallel) {
  HWY_DYNAMIC_DISPATCH(forward)(in, sum, norm, scale, parallel);
}

void rms_norm_backward(const Norm& in, const float* scale, View grad_norm, View grad_sum,
                       float* grad_x, float* grad_gain, const ParallelFor& parallel) {
  HWY_DYNAMIC_DISPATCH(backward)(in, scale, grad_norm, grad_sum, grad_x, grad_gain, parallel);
}

}  // namespace bmojo::kernels
#endif
