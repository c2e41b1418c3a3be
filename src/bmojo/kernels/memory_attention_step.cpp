#include "bmojo/kernels/memory_attention_step.h"

#include <algorithm>
#include <cmath>

#include "bmojo/kernels/cpu.h"
#include "bmojo/kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bmojo/kernels/memory_attention_step.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "bmojo/kernels/tile-inl.h"

// Two passes, each cut into tasks without cutting a sum. Scores: vectors run over keys, and a task
// owns some keys of a token with all its heads, so that every row is read once. Values: vectors run
// over channels, and a task owns a few channels of one key/value head with the query heads that
// read it; it takes the exponentials of their scores for itself, which costs less than a third
// pass. Each sum has the terms, the order and the one accumulator that memory_attention gives it.

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {
namespace {

constexpr int64_t kBlock = 64;       // keys
constexpr int64_t kChannels = 32;    // of a task
constexpr int64_t kHeads = 16;       // query heads of a task
constexpr int kHeadsAtOnce = 4;      // in registers
constexpr int64_t kTrivial = 65536;  // products q_i k_i that no second thread is woken for

struct Work {
  AttentionStepShape shape;
  std::span<const AttentionStep> steps;
  int64_t width = 0;        // keys of the longest step, in whole panels
  float* scores = nullptr;  // [steps, H, width]

  int64_t ratio() const { return shape.num_heads / shape.num_kv_heads; }
  int64_t stride() const { return 2 * shape.num_kv_heads * shape.head; }
  float* scores_of(int64_t step, int64_t head) const {
    return scores + (step * shape.num_heads + head) * width;
  }
};

int64_t num_keys(const AttentionStep& step) {
  int64_t count = 0;
  for (const auto& run : step.runs) count += run.count;
  return count;
}

const float* row_at(const AttentionStep& step, int64_t stride, int64_t j) {
  const RowRun* run = step.runs;
  while (j >= run->count) j -= (run++)->count;
  return run->first + j * stride;
}

// Reads a row and forgets it. View in their order, keys and values, are a stream that the hardware
// reads ahead of; the parts of them that a pass needs, or prefetches of these, are none: they came
// from memory at half the speed.
HWY_INLINE void touch(const float* row, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) {
    const float x = row[i];
    asm volatile("" : : "x"(x));
  }
}

// x[c] = element i + c of kLanes rows, c < 4.
HWY_INLINE void load_columns(const float* const* rows, int64_t i, V (&x)[4]) {
  const Floats d;
  const hn::Repartition<double, Floats> pairs;
  const hn::FixedTag<float, 4> four;
  const hn::FixedTag<float, 8> eight;
  V y[4];
  // A block of four lanes holds a row; rows four apart stand side by side.
  each<4>([&](auto j) BMOJO_BODY {
    const auto low =
        hn::Combine(eight, hn::LoadU(four, rows[j + 4] + i), hn::LoadU(four, rows[j] + i));
    if constexpr (kLanes == 8)
      x[j] = low;
    else
      x[j] = hn::Combine(
          d,
          hn::Combine(eight, hn::LoadU(four, rows[j + 12] + i), hn::LoadU(four, rows[j + 8] + i)),
          low);
  });
  // Then each block is transposed.
  each<2>([&](auto j) BMOJO_BODY {
    y[2 * j] = hn::InterleaveLower(d, x[2 * j], x[2 * j + 1]);
    y[2 * j + 1] = hn::InterleaveUpper(d, x[2 * j], x[2 * j + 1]);
  });
  each<2>([&](auto j) BMOJO_BODY {
    const auto low = hn::BitCast(pairs, y[j]), high = hn::BitCast(pairs, y[j + 2]);
    x[2 * j] = hn::BitCast(d, hn::InterleaveLower(pairs, low, high));
    x[2 * j + 1] = hn::BitCast(d, hn::InterleaveUpper(pairs, low, high));
  });
}

HWY_INLINE V load_column(const float* const* rows, int64_t i) {
  HWY_ALIGN float lanes[kLanes];
  for (int64_t n = 0; n < kLanes; ++n) lanes[n] = rows[n][i];
  return hn::Load(Floats(), lanes);
}

// a[m] and b[m] = q_m · k of the first and the last kLanes of kPanel keys, q [M, size].
template <int M>
HWY_INLINE void key_products(const float* const* keys, const float* HWY_RESTRICT q, int64_t size,
                             V (&a)[M], V (&b)[M]) {
  each<M>([&](auto m) BMOJO_BODY { a[m] = b[m] = zero(); });
  int64_t i = 0;
  for (; i + 4 <= size; i += 4) {
    V x[4];
    load_columns(keys, i, x);
    each<4>([&](auto c) BMOJO_BODY {
      each<M>([&](auto m) BMOJO_BODY { a[m] = hn::MulAdd(x[c], all(q[m * size + i + c]), a[m]); });
    });
    load_columns(keys + kLanes, i, x);
    each<4>([&](auto c) BMOJO_BODY {
      each<M>([&](auto m) BMOJO_BODY { b[m] = hn::MulAdd(x[c], all(q[m * size + i + c]), b[m]); });
    });
  }
  for (; i < size; ++i) {
    const V left = load_column(keys, i), right = load_column(keys + kLanes, i);
    each<M>([&](auto m) BMOJO_BODY {
      const V x = all(q[m * size + i]);
      a[m] = hn::MulAdd(left, x, a[m]);
      b[m] = hn::MulAdd(right, x, b[m]);
    });
  }
}

// The score of keys [j, j + kLanes) from their product; -∞ behind the last one.
HWY_INLINE V finish_scores(const AttentionStep& step, int64_t count, V product, V scale,
                           int64_t j) {
  const Floats d;
  const auto first = [&](int64_t n) HWY_ATTR {
    return hn::FirstN(d, static_cast<size_t>(std::clamp<int64_t>(n - j, 0, kLanes)));
  };
  V x = hn::Mul(product, scale);
  if (j < step.num_biased) {
    const V bias = load(step.bias + j, std::min(kLanes, step.num_biased - j));
    x = hn::IfThenElse(first(step.num_biased), hn::Add(x, bias), x);
  }
  return hn::IfThenElse(first(count), x, all(-std::numeric_limits<float>::infinity()));
}

// All heads' scores of keys [first, last) of a step; first and last in whole panels.
void fill_scores(const Work& work, int64_t s, int64_t first, int64_t last) {
  const AttentionStep& step = work.steps[static_cast<size_t>(s)];
  const int64_t size = work.shape.head, count = num_keys(step);
  const V scale = all(1.0f / std::sqrt(static_cast<float>(size)));
  for (int64_t j = first; j < std::min(last, count); j += kPanel) {
    const float* keys[kPanel];
    for (int64_t n = 0; n < kPanel; ++n) {
      keys[n] = row_at(step, work.stride(), std::min(j + n, count - 1));
      touch(keys[n], work.stride());
    }
    for (int64_t group = 0; group < work.shape.num_kv_heads; ++group) {
      in_steps<kHeadsAtOnce>(work.ratio(), [&](auto M, int64_t m) HWY_ATTR {
        V a[M()], b[M()];
        const int64_t head = group * work.ratio() + m;
        key_products<M()>(keys, step.q + head * size, size, a, b);
        each<M()>([&](auto i) BMOJO_BODY {
          float* to = work.scores_of(s, head + i) + j;
          hn::Store(finish_scores(step, count, a[i], scale, j), Floats(), to);
          hn::Store(finish_scores(step, count, b[i], scale, j + kLanes), Floats(), to + kLanes);
        });
      });
      for (auto& key : keys) key += size;
    }
  }
}

HWY_INLINE float largest_of(const float* scores, int64_t count) {
  V largest = all(-std::numeric_limits<float>::infinity());
  // NaN is passed over, as the first operand.
  for (int64_t k = 0; k < count; k += kLanes)
    largest = hn::Max(hn::Load(Floats(), scores + k), largest);
  return hn::GetLane(hn::MaxOfLanes(Floats(), largest));
}

// Of one query head: the sum of its weights, in every lane, and of the weighted values of a panel.
struct Sums {
  HWY_ALIGN float weights[kLanes] = {}, left[kLanes] = {}, right[kLanes] = {};
};

// sums[m] over `count` values of a panel that lie `stride` apart; weights [M, kBlock].
template <int M>
HWY_INLINE void weigh(const float* HWY_RESTRICT weights, const float* HWY_RESTRICT values,
                      int64_t stride, int64_t count, Sums* HWY_RESTRICT sums) {
  const Floats d;
  V s[M], a[M], b[M];
  each<M>([&](auto m) BMOJO_BODY {
    s[m] = hn::Load(d, sums[m].weights);
    a[m] = hn::Load(d, sums[m].left);
    b[m] = hn::Load(d, sums[m].right);
  });
  for (int64_t k = 0; k < count; ++k) {
    const V left = load(values + k * stride), right = load(values + k * stride + kLanes);
    each<M>([&](auto m) BMOJO_BODY {
      const V w = all(weights[m * kBlock + k]);
      s[m] = hn::Add(s[m], w);
      a[m] = hn::MulAdd(left, w, a[m]);
      b[m] = hn::MulAdd(right, w, b[m]);
    });
  }
  each<M>([&](auto m) BMOJO_BODY {
    hn::Store(s[m], d, sums[m].weights);
    hn::Store(a[m], d, sums[m].left);
    hn::Store(b[m], d, sums[m].right);
  });
}

// Channels [first, first + channels) of the key/value head `group`, for query heads
// [head, head + heads).
struct Part {
  int64_t step, group, head, heads, first, channels;
};

Part make_part(const Work& work, int64_t task) {
  const int64_t parts = (work.ratio() + kHeads - 1) / kHeads,
                cuts = (work.shape.head + kChannels - 1) / kChannels, rest = task / cuts,
                part = rest % parts, pair = rest / parts;
  const int64_t first = task % cuts * kChannels, group = pair % work.shape.num_kv_heads;
  return {.step = pair / work.shape.num_kv_heads,
          .group = group,
          .head = group * work.ratio() + part * kHeads,
          .heads = std::min(kHeads, work.ratio() - part * kHeads),
          .first = first,
          .channels = std::min(kChannels, work.shape.head - first)};
}

int64_t num_parts(const Work& work) {
  return std::ssize(work.steps) * work.shape.num_kv_heads * ((work.ratio() + kHeads - 1) / kHeads) *
         ((work.shape.head + kChannels - 1) / kChannels);
}

// What a task keeps from block to block.
struct Mix {
  HWY_ALIGN float largest[kHeads];
  HWY_ALIGN float weights[kHeads * kBlock];
  HWY_ALIGN float padded[kBlock * kPanel];  // values of a panel that is not full
  Sums sums[kChannels / kPanel][kHeads];
};

// Adds `count` ≤ kBlock keys from j on, whose values begin at `values`.
void add_values(const Work& work, const Part& part, int64_t j, const float* values, int64_t count,
                Mix& mix) {
  const Floats d;
  for (int64_t m = 0; m < part.heads; ++m) {
    const float* scores = work.scores_of(part.step, part.head + m) + j;
    for (int64_t k = 0; k < count; k += kLanes) {
      const V x = hn::Sub(load(scores + k), all(mix.largest[m]));
      hn::Store(exp2_negative(hn::Mul(x, all(kLog2E))), d, mix.weights + m * kBlock + k);
    }
  }
  for (int64_t c = 0; c < part.channels; c += kPanel) {
    const float* panel = values + c;
    int64_t stride = work.stride();
    if (part.channels - c < kPanel) {
      for (int64_t k = 0; k < count; ++k)
        std::copy_n(panel + k * stride, part.channels - c, mix.padded + k * kPanel);
      panel = mix.padded;
      stride = kPanel;
    }
    in_steps<kHeadsAtOnce>(part.heads, [&](auto M, int64_t m) HWY_ATTR {
      weigh<M()>(mix.weights + m * kBlock, panel, stride, count, mix.sums[c / kPanel] + m);
    });
  }
}

void mix_values(const Work& work, const Part& part) {
  const AttentionStep& step = work.steps[static_cast<size_t>(part.step)];
  Mix mix;
  for (int64_t m = 0; m < part.heads; ++m)
    mix.largest[m] = largest_of(work.scores_of(part.step, part.head + m), num_keys(step));
  const int64_t stride = work.stride(),
                offset = (work.shape.num_kv_heads + part.group) * work.shape.head + part.first;
  int64_t j = 0;
  for (const auto& run : step.runs)
    for (int64_t k = 0; k < run.count; k += kBlock) {
      const int64_t count = std::min(kBlock, run.count - k);
      add_values(work, part, j, run.first + k * stride + offset, count, mix);
      j += count;
    }
  for (int64_t m = 0; m < part.heads; ++m)
    for (int64_t c = 0; c < part.channels; c += kLanes) {
      const Sums& sums = mix.sums[c / kPanel][m];
      const float* sum = c % kPanel == 0 ? sums.left : sums.right;
      // -0 becomes 0, as in memory_attention.
      const V mixed =
          hn::Add(hn::Div(hn::Load(Floats(), sum), hn::Load(Floats(), sums.weights)), zero());
      store(mixed, step.out + (part.head + m) * work.shape.head + part.first + c,
            std::min(kLanes, part.channels - c));
    }
}

// Grows and is kept: a step allocates nothing.
float* kept_scratch(int64_t count) {
  thread_local hwy::AlignedFreeUniquePtr<float[]> memory;
  thread_local int64_t size = 0;
  if (count > size) {
    memory = hwy::AllocateAligned<float>(static_cast<size_t>(count));
    if (!memory) throw std::bad_alloc();
    size = count;
  }
  return memory.get();
}

}  // namespace

void attention_steps(const AttentionStepShape& shape, std::span<const AttentionStep> steps,
                     const ParallelFor& parallel) {
  Work work{.shape = shape, .steps = steps};
  int64_t longest = 0, total = 0;
  for (const auto& step : steps) {
    longest = std::max(longest, num_keys(step));
    total += num_keys(step);
  }
  const int64_t blocks = (longest + kBlock - 1) / kBlock;
  work.width = blocks * kBlock;
  // Where a run ends between two vectors, up to a vector more is read.
  work.scores = kept_scratch(std::ssize(steps) * shape.num_heads * work.width + kLanes);
  const auto fill = [&work](int64_t task) {
    const int64_t num_blocks = work.width / kBlock, first = task % num_blocks * kBlock;
    fill_scores(work, task / num_blocks, first, first + kBlock);
  };
  const auto mix = [&work](int64_t task) { mix_values(work, make_part(work, task)); };
  if (total * shape.num_heads * shape.head <= kTrivial) {
    run(serial_for, std::ssize(steps) * blocks, fill);
    run(serial_for, num_parts(work), mix);
    return;
  }
  run(parallel, std::ssize(steps) * blocks, fill);
  run(parallel, num_parts(work), mix);
}

}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bmojo::kernels {

HWY_EXPORT(attention_steps);

void memory_attention_steps(const AttentionStepShape& shape, std::span<const AttentionStep> steps,
                            const ParallelFor& parallel) {
  HWY_DYNAMIC_DISPATCH(attention_steps)(shape, steps, parallel);
}

}  // namespace bmojo::kernels
#endif
