#include "bmojo/kernels/product.h"

#include <algorithm>
#include <vector>

#include "bmojo/kernels/cpu.h"
#include "bmojo/kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bmojo/kernels/product.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "bmojo/kernels/panel-inl.h"

// b is laid out in panels of kPanel columns, which all threads share; a task is some rows of out,
// and lays out its rows of a in strips of kRowsAtOnce. A strip times a panel is a tile of out that
// stays in registers while k runs over a block: the panel waits in the first cache for the next
// strip, the strips in the second for the next panel.

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {
namespace {

constexpr int64_t kWidest = 4096;                // columns of b that are laid out at a time
constexpr int64_t kSlab = 1 << 19;               // numbers of them, but at least a block of k
constexpr int64_t kPanelsAtOnce = 8;             // laid out by a task
constexpr int64_t kHighest = 192, kLowest = 24;  // rows of out that a task computes
static_assert(kHighest % kRowsAtOnce == 0 && kLowest % kRowsAtOnce == 0);

// Where tasks begin, and the end. They become lower towards it, so that threads are done at the
// same time however fast each of them is.
std::vector<int64_t> cuts(int64_t M) {
  std::vector<int64_t> at = {0};
  while (at.back() < M) {
    const int64_t sixth = (M - at.back()) / 6 / kLowest * kLowest;
    at.push_back(std::min(M, at.back() + std::clamp(sixth, kLowest, kHighest)));
  }
  return at;
}

int64_t panels_of(int64_t columns) { return (columns + kPanel - 1) / kPanel; }

// All of b into panels, blocks of k one after the other.
void pack_panels(const Product& in, float* panels, const ParallelFor& parallel) {
  const int64_t count = panels_of(in.N), groups = (count + kPanelsAtOnce - 1) / kPanelsAtOnce;
  run(parallel, (in.K + kDepth - 1) / kDepth * groups, [&](int64_t task) HWY_ATTR {
    const int64_t k = task / groups * kDepth, depth = std::min(kDepth, in.K - k);
    const int64_t first = task % groups * kPanelsAtOnce;
    const int64_t n = first * kPanel, columns = std::min(in.N - n, kPanelsAtOnce * kPanel);
    pack<kPanel>(in.b.data + k * in.b.row + n * in.b.column, in.b.column, in.b.row, columns, depth,
                 panels + count * kPanel * k + n * depth);
  });
}

void multiply_rows(const Product& in, const float* panels, int64_t begin, int64_t end) {
  const int64_t count = panels_of(in.N);
  const int64_t whole = (end - begin + kRowsAtOnce - 1) / kRowsAtOnce * kRowsAtOnce;
  const auto strips = scratch(whole * std::min(kDepth, in.K) + 2);
  for (int64_t k = 0; k < in.K; k += kDepth) {
    const int64_t depth = std::min(kDepth, in.K - k);
    pack<kRowsAtOnce>(in.a.data + begin * in.a.row + k * in.a.column, in.a.row, in.a.column,
                      end - begin, depth, strips.get());
    for (int64_t n = 0; n < in.N; n += kPanel) {
      const float* panel = panels + count * kPanel * k + n * depth;
      for (int64_t m = begin; m < end; m += kRowsAtOnce)
        multiply_cut<kRowsAtOnce, 2, kPanel>(Strip{strips.get() + (m - begin) * depth}, panel,
                                             depth, in.out + m * in.out_stride + n, in.out_stride,
                                             end - m, in.N - n, in.add || k > 0);
    }
  }
}

}  // namespace

void all_products(const Product& in, const ParallelFor& parallel) {
  if (in.K == 0 && !in.add)
    for (int64_t m = 0; m < in.M; ++m) std::fill_n(in.out + m * in.out_stride, in.N, 0.0f);
  if (in.M == 0 || in.N == 0 || in.K == 0) return;
  const auto begins = cuts(in.M);
  const int64_t widest = panels_of(std::min(in.N, kWidest)) * kPanel;
  const int64_t deepest = std::min(in.K, std::max<int64_t>(1, kSlab / kDepth / widest) * kDepth);
  const auto panels = scratch(widest * deepest);
  for (int64_t n = 0; n < in.N; n += kWidest)
    for (int64_t k = 0; k < in.K; k += deepest) {
      const Product part = {
          .M = in.M,
          .N = std::min(kWidest, in.N - n),
          .K = std::min(deepest, in.K - k),
          .a = {in.a.data + k * in.a.column, in.a.row, in.a.column},
          .b = {in.b.data + k * in.b.row + n * in.b.column, in.b.row, in.b.column},
          .out = in.out + n,
          .out_stride = in.out_stride,
          .add = in.add || k > 0};
      pack_panels(part, panels.get(), parallel);
      run(parallel, std::ssize(begins) - 1, [&](int64_t task) HWY_ATTR {
        multiply_rows(part, panels.get(), begins[static_cast<size_t>(task)],
                      begins[static_cast<size_t>(task) + 1]);
      });
    }
}

}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bmojo::kernels {

HWY_EXPORT(all_products);

void product(const Product& in, const ParallelFor& parallel) {
  HWY_DYNAMIC_DISPATCH(all_products)(in, parallel);
}

}  // namespace bmojo::kernels
#endif
