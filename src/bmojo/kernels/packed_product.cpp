#include "bmojo/kernels/packed_product.h"

#include <algorithm>

#include "bmojo/base/bf16.h"
#include "bmojo/kernels/cpu.h"
#include "bmojo/kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bmojo/kernels/packed_product.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "bmojo/kernels/panel-inl.h"

// Up to kFew rows, a task is some panels: each is read once, as one stream, and the rows of x where
// they lie. With more, x is laid out in strips first, and a task is some panels of some rows: its
// strips and panels wait in the second cache for each other.

#ifndef BMOJO_KERNELS_PACKED_PRODUCT_CPP_
#define BMOJO_KERNELS_PACKED_PRODUCT_CPP_
namespace bmojo::kernels {
namespace {

constexpr int64_t kColumns = kPanelRows;  // of a panel, which has W's rows as columns
constexpr int64_t kFew = 8;

int64_t panels_in(int64_t N) { return (N + kColumns - 1) / kColumns; }

// What depends on the type of weights: work is called with a number of that type.
template <typename Work>
void with_type(WeightType type, const Work& work) {
  type == WeightType::f32 ? work(float{}) : work(uint16_t{});
}

}  // namespace
}  // namespace bmojo::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {
namespace {

constexpr int64_t kTaskBytes = 1 << 15;  // of panels that one task reads, or kStreams panels
constexpr int64_t kSlabRows = 768;       // of x that are laid out at a time
constexpr int64_t kTaskSequences = 192;  // with kTaskPanels and a block of k: 640 KiB
constexpr int64_t kTaskPanels = 4;
constexpr int kPerPanel = kColumns / kLanes;  // vectors
constexpr int kStreams = 4;                   // panels that are read side by side
static_assert(kTaskSequences % kRowsAtOnce == 0 && kSlabRows % kTaskSequences == 0);

// Panels in tasks of `at_once`; at least the last `singly` go one by one, so that threads are done
// at the same time.
struct Tasks {
  int64_t panels, at_once, singly = 0;
  int64_t groups() const { return std::max<int64_t>(0, panels - singly) / at_once; }
  int64_t count() const { return groups() + panels - groups() * at_once; }
  int64_t first(int64_t task) const {
    return std::min(task, groups()) * at_once + std::max<int64_t>(0, task - groups());
  }
};

// Calls work(integral constant rows, first row) over [0, M), in few sizes: each is code of its own,
// and what the first reads of a panel waits in a cache for the next.
template <typename Work>
HWY_INLINE void in_few_sizes(int64_t M, const Work& work) {
  int64_t m = 0;
  const auto next = [&](auto rows) BMOJO_BODY {
    work(rows, m);
    m += rows;
  };
  while (M - m >= kRowsAtOnce) next(std::integral_constant<int, kRowsAtOnce>());
  if (M - m >= 4) next(std::integral_constant<int, 4>());
  if (M - m >= 2) next(std::integral_constant<int, 2>());
  if (M - m >= 1) next(std::integral_constant<int, 1>());
}

// Up to kStreams panels: out [M, columns], as many columns at a time as there are accumulators for.
// Memory is faster when it is read in several places: one panel after the other gave 0.6 of a plain
// read, four side by side 0.9 and more (2 cores, AVX-512).
template <typename Weight>
void few_rows(const PackedProduct& in, const Weight* panel, float* out, int64_t columns) {
  const int64_t size = in.w.K * kColumns;
  for (int64_t k = 0; k < in.w.K; k += kDepth) {
    const int64_t depth = std::min(kDepth, in.w.K - k);
    in_few_sizes(in.M, [&](auto rows, int64_t m) BMOJO_BODY {
      constexpr int kMost = 2 * kRowsAtOnce / rows;  // vectors
      constexpr int kPanels = std::min(kMost / kPerPanel / 2 * 2, kStreams);
      const LeftRows left = {in.x.data + m * in.x.stride + k, in.x.stride};
      const auto multiply = [&](auto vectors, int64_t n) BMOJO_BODY {
        multiply_cut<rows, vectors, kColumns>(
            left, panel + n / kColumns * size + k * kColumns + n % kColumns, depth,
            out + m * in.out_stride + n, in.out_stride, rows, columns - n, k > 0, size);
      };
      int64_t n = 0;
      if constexpr (kPanels > 1)
        for (; columns - n > (kPanels - 1) * kColumns; n += kPanels * kColumns)
          multiply(std::integral_constant<int, kPanels * kPerPanel>(), n);
      constexpr int kVectors = kMost >= kPerPanel ? kPerPanel : 2;
      for (; n < columns; n += kVectors * kLanes)
        multiply(std::integral_constant<int, kVectors>(), n);
    });
  }
}

template <typename Weight>
void all_few_rows(const PackedProduct& in, const ParallelFor& parallel) {
  const auto* panels = static_cast<const Weight*>(in.w.panels);
  const int64_t size = in.w.K * kColumns * static_cast<int64_t>(sizeof(Weight));
  const int64_t each_task = kStreams * std::max<int64_t>(1, kTaskBytes / (kStreams * size));
  const Tasks tasks = {panels_in(in.w.N), each_task};
  run(parallel, tasks.count(), [&](int64_t task) HWY_ATTR {
    const int64_t end = std::min(in.w.N, tasks.first(task + 1) * kColumns);
    for (int64_t n = tasks.first(task) * kColumns; n < end; n += kStreams * kColumns)
      few_rows(in, panels + n * in.w.K, in.out + n, std::min(kStreams * kColumns, end - n));
  });
}

// A block of a panel in floats: as it is, or widened into `wide`.
const float* floats(const float* panel, int64_t, float*) { return panel; }
const float* floats(const uint16_t* panel, int64_t depth, float* wide) {
  for (int64_t i = 0; i < depth * kColumns; i += kLanes)
    hn::Store(widened(panel + i), Floats(), wide + i);
  return wide;
}

// Rows [m, m + rows) of out and panels [first, end). The slab has `whole` rows in whole strips:
// those of the block at k begin at strips + whole · k.
template <typename Weight>
void tile_of_rows(const PackedProduct& in, const float* strips, int64_t whole, int64_t m,
                  int64_t rows, int64_t first, int64_t end) {
  const auto* panels = static_cast<const Weight*>(in.w.panels);
  const auto wide = scratch(sizeof(Weight) < sizeof(float) ? kDepth * kColumns : 0);
  for (int64_t k = 0; k < in.w.K; k += kDepth) {
    const int64_t depth = std::min(kDepth, in.w.K - k);
    const float* strip = strips + whole * k + m * depth;
    for (int64_t p = first; p < end; ++p) {
      const float* panel = floats(panels + (p * in.w.K + k) * kColumns, depth, wide.get());
      for (int64_t n = p * kColumns; n < std::min(in.w.N, (p + 1) * kColumns); n += kPanel)
        for (int64_t i = 0; i < rows; i += kRowsAtOnce)
          multiply_cut<kRowsAtOnce, 2, kColumns>(Strip{strip + i * depth}, panel + n % kColumns,
                                                 depth, in.out + (m + i) * in.out_stride + n,
                                                 in.out_stride, rows - i, in.w.N - n, k > 0);
    }
  }
}

void lay_out_strips(const PackedProduct& in, float* strips, int64_t whole,
                    const ParallelFor& parallel) {
  const int64_t count = whole / kRowsAtOnce;
  run(parallel, count, [&](int64_t task) HWY_ATTR {
    const int64_t m = task * kRowsAtOnce, rows = std::min<int64_t>(kRowsAtOnce, in.M - m);
    // Up to 2 numbers behind a strip are written, where another task's would be.
    HWY_ALIGN float strip[kRowsAtOnce * kDepth + 2];
    for (int64_t k = 0; k < in.w.K; k += kDepth) {
      const int64_t depth = std::min(kDepth, in.w.K - k);
      pack<kRowsAtOnce>(in.x.data + m * in.x.stride + k, in.x.stride, 1, rows, depth, strip);
      std::copy_n(strip, kRowsAtOnce * depth, strips + whole * k + m * depth);
    }
  });
}

template <typename Weight>
void slab_of_rows(const PackedProduct& in, float* strips, const ParallelFor& parallel) {
  const int64_t whole = (in.M + kRowsAtOnce - 1) / kRowsAtOnce * kRowsAtOnce;
  lay_out_strips(in, strips, whole, parallel);
  const int64_t pieces = (in.M + kTaskSequences - 1) / kTaskSequences;
  const Tasks tasks = {panels_in(in.w.N), kTaskPanels, 2 * kTaskPanels};
  run(parallel, tasks.count() * pieces, [&](int64_t task) HWY_ATTR {
    const int64_t group = task / pieces, m = task % pieces * kTaskSequences;
    tile_of_rows<Weight>(in, strips, whole, m, std::min(kTaskSequences, in.M - m),
                         tasks.first(group), tasks.first(group + 1));
  });
}

template <typename Weight>
void all_many_rows(const PackedProduct& in, const ParallelFor& parallel) {
  const auto strips = scratch((std::min(in.M, kSlabRows) + kRowsAtOnce) * in.w.K);
  for (int64_t m = 0; m < in.M; m += kSlabRows) {
    auto slab = in;
    slab.M = std::min(kSlabRows, in.M - m);
    slab.x.data += m * in.x.stride;
    slab.out += m * in.out_stride;
    slab_of_rows<Weight>(slab, strips.get(), parallel);
  }
}

}  // namespace

void all_packed_products(const PackedProduct& in, const ParallelFor& parallel) {
  if (in.w.K == 0)
    for (int64_t m = 0; m < in.M; ++m) std::fill_n(in.out + m * in.out_stride, in.w.N, 0.0f);
  if (in.M == 0 || in.w.N == 0 || in.w.K == 0) return;
  with_type(in.w.type, [&]<typename Weight>(Weight) {
    in.M <= kFew ? all_few_rows<Weight>(in, parallel) : all_many_rows<Weight>(in, parallel);
  });
}

}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bmojo::kernels {

HWY_EXPORT(all_packed_products);

namespace {

void convert(float x, float& to) { to = x; }
void convert(uint16_t x, uint16_t& to) { to = x; }
void convert(uint16_t x, float& to) { to = base::float_of_bf16(x); }
void convert(float x, uint16_t& to) { to = base::bf16_of_float(x); }

// W's rows [first, end) of one panel, K numbers of 32 rows: a few numbers of each at a time, so
// that what is read and what is written stay in the first cache.
template <typename Source, typename Weight>
void pack_panel(const Source* src, int64_t first, int64_t end, int64_t K, Weight* panel) {
  constexpr int64_t kAtOnce = 16;
  for (int64_t begin = 0; begin < K; begin += kAtOnce)
    for (int64_t row = first; row < end; ++row)
      for (int64_t k = begin; k < std::min(K, begin + kAtOnce); ++k)
        convert(src[(row - first) * K + k], panel[k * kColumns + row]);
}

template <typename Source>
void pack_any(const Source* src, const PackedRows& to, const ParallelFor& parallel) {
  if (to.count == 0) return;
  const int64_t end = to.first + to.count, begin_panel = to.first / kColumns;
  with_type(to.type, [&]<typename Weight>(Weight) {
    parallel(panels_in(end) - begin_panel, [&](int64_t task) {
      const int64_t row = (begin_panel + task) * kColumns;
      auto* panel = static_cast<Weight*>(to.panels) + row * to.K;
      const int64_t first = std::max(to.first, row), last = std::min(end, row + kColumns);
      pack_panel(src + (first - to.first) * to.K, first - row, last - row, to.K, panel);
      for (int64_t k = 0; last == to.N && k < to.K; ++k)
        std::fill(panel + k * kColumns + last - row, panel + (k + 1) * kColumns, Weight{});
    });
  });
}

}  // namespace

int64_t packed_bytes(int64_t N, int64_t K, WeightType type) {
  int64_t bytes = 0;
  with_type(type, [&](auto weight) {
    bytes = panels_in(N) * kColumns * K * static_cast<int64_t>(sizeof(weight));
  });
  return bytes;
}

void pack_rows(const float* src, const PackedRows& to, const ParallelFor& parallel) {
  pack_any(src, to, parallel);
}

void pack_rows(const uint16_t* src, const PackedRows& to, const ParallelFor& parallel) {
  pack_any(src, to, parallel);
}

void packed_product(const PackedProduct& in, const ParallelFor& parallel) {
  HWY_DYNAMIC_DISPATCH(all_packed_products)(in, parallel);
}

}  // namespace bmojo::kernels
#endif
