// How gradients go back through a History, built once for each instruction set (hence the guard).
#if defined(BMOJO_KERNELS_HISTORY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BMOJO_KERNELS_HISTORY_INL_H_
#undef BMOJO_KERNELS_HISTORY_INL_H_
#else
#define BMOJO_KERNELS_HISTORY_INL_H_
#endif

#include <vector>

#include "bmojo/kernels/history.h"
#include "bmojo/kernels/row-inl.h"
#include "bmojo/kernels/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {

// What a token reads: reach + 1 rows, the present first.
struct Reads {
  explicit Reads(const History& h) : rows(scratch<const float*>(h.depth + 1)) {}
  void at(const History& h, int64_t b, int64_t t) {
    count = h.reach(b, t) + 1;
    for (int64_t i = 0; i < count; ++i) rows[static_cast<size_t>(i)] = h.row(b, t - i);
  }
  const float* row(int64_t i) const { return rows[static_cast<size_t>(i)]; }
  ScratchOf<const float*> rows;
  int64_t count = 0;
};

inline constexpr int64_t kHistoryAhead = 16;  // tokens from a row's prefetch to itself

// Token t of sequence b made Σ_i weight_i ⊙ x_{t-i} over i ≤ reach(t), and d_t is the gradient to
// that.
//   fill(t, d) gives d_t for the channels [first, first + count); t runs backwards
//   weight(i, c, lanes) gives weight_i from channel first + c on
//   grad_next [B, depth, C] is the gradient to the next tail
// The gradients to the group's channels of x [B, L, C] and tail [B, depth, C] come out.
template <typename Fill, typename Weight>
HWY_INLINE void back_through(const History& h, int64_t b, int64_t first, int64_t count,
                             const float* grad_next, float* grad_x, float* grad_tail,
                             const Fill& fill, const Weight& weight) {
  const int64_t taps = h.depth + 1, length = h.length(b);
  // A token reaches depth rows back: d of the last taps tokens, round and round.
  const auto ring = scratch(taps * kHistoryGroup);
  const auto d = [&](int64_t t) { return ring.get() + t % taps * kHistoryGroup; };
  struct Reader {
    int64_t tap;
    const float* d;
  };
  std::vector<Reader> readers(static_cast<size_t>(taps));
  for (int64_t t = length - 1; t >= -h.depth; --t) {
    if (const int64_t soon = t - kHistoryAhead; soon >= 0) {
      prefetch(h.row(b, soon) + first, count);
      prefetch(grad_x + (b * h.L + soon) * h.C + first, count);
    }
    if (t >= 0) fill(t, d(t));
    size_t num_readers = 0;
    for (int64_t i = std::max<int64_t>(0, -t); i < taps && t + i < length; ++i)
      if (h.position(b, t + i) >= i) readers[num_readers++] = {i, d(t + i)};
    const int64_t kept = t - (length - h.depth);
    const float* from = kept >= 0 ? grad_next + (b * h.depth + kept) * h.C + first : nullptr;
    float* to = (t >= 0 ? grad_x + (b * h.L + t) * h.C : grad_tail + ((b + 1) * h.depth + t) * h.C);
    over_row(count, [&](int64_t c, int64_t lanes) BMOJO_BODY {
      V sum = from != nullptr ? load(from + c, lanes) : zero();
      for (size_t r = 0; r < num_readers; ++r)
        sum = hn::MulAdd(weight(readers[r].tap, c, lanes), load(readers[r].d + c), sum);
      store(sum, to + first + c, lanes);
    });
  }
  for (int64_t t = length; t < h.L; ++t)
    std::fill_n(grad_x + (b * h.L + t) * h.C + first, count, 0.0f);
}

}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
