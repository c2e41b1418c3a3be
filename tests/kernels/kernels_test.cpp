// The kernels without torch, over arrays that end where the data ends: under the sanitizers every
// step beyond shows. What they compute is compared with plain loops here and with their references
// in nn/kernel.

#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <functional>
#include <random>
#include <thread>

#include "bmojo/base/error.h"
#include "bmojo/kernels/causal_conv.h"
#include "bmojo/kernels/cpu.h"
#include "bmojo/kernels/cross_entropy.h"
#include "bmojo/kernels/innovation.h"
#include "bmojo/kernels/memory_attention.h"
#include "bmojo/kernels/norm.h"
#include "bmojo/kernels/product.h"
#include "bmojo/kernels/rotary.h"
#include "bmojo/kernels/selection.h"
#include "bmojo/kernels/selective_scan.h"
#include "bmojo/kernels/swiglu.h"

namespace bmojo::kernels {
namespace {

std::vector<float> normal(int64_t count, unsigned seed, float shift = 0) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> draw(shift, 1);
  std::vector<float> out(static_cast<size_t>(count));
  for (auto& x : out) x = draw(engine);
  return out;
}

// A thread each, as no pool would do it: what tasks share shows under the thread sanitizer.
void threads_for(int64_t n, const Task& task) {
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < n; ++i) threads.emplace_back([&task, i] { task(i); });
  for (auto& thread : threads) thread.join();
}

size_t at(int64_t i) { return static_cast<size_t>(i); }
double silu(double x) { return x / (1 + std::exp(-x)); }

// Runs a kernel over outputs of these sizes, first alone, then a thread a task: each number must be
// written, and be the same. There must be more than one task.
using Arrays = std::vector<std::vector<float>>;
Arrays written(const std::vector<int64_t>& sizes,
               const std::function<void(Arrays&, const ParallelFor&)>& kernel) {
  Arrays alone, shared;
  for (auto* out : {&alone, &shared})
    for (const auto size : sizes) out->emplace_back(at(size), NAN);
  int64_t most = 0;
  kernel(alone, serial_for);
  kernel(shared, [&](int64_t n, const Task& task) {
    most = std::max(most, n);
    threads_for(n, task);
  });
  EXPECT_GT(most, 1);
  for (const auto& out : alone)
    for (const auto value : out) EXPECT_TRUE(std::isfinite(value));
  EXPECT_EQ(alone, shared);
  return alone;
}

// With each instruction set that this CPU has.
class Kernels : public testing::TestWithParam<std::string> {
 protected:
  Kernels() { use_target(GetParam()); }
  ~Kernels() override { use_target(""); }
};

struct ScanData {
  int64_t B = 2, L = 37, E = 71, N = 5;
  std::vector<float> x = normal(B * L * E, 1), dt = normal(B * L * E, 2), z = normal(B * L * E, 3),
                     in = normal(B * L * N, 4), out = normal(B * L * N, 5), A = normal(E * N, 6),
                     D = normal(E, 7), bias = normal(E, 8, -2), h0 = normal(B * E * N, 9);
  std::vector<uint8_t> starts = std::vector<uint8_t>(static_cast<size_t>(B * L), 0);
  std::vector<int64_t> lengths = {L, 20};

  ScanData() {
    for (auto& a : A) a = -std::abs(a);
    starts[9] = starts[static_cast<size_t>(L + 4)] = 1;
  }
  Scan scan() const {
    return {.B = B,
            .L = L,
            .E = E,
            .N = N,
            .x = {x.data(), E},
            .dt = {dt.data(), E},
            .z = {z.data(), E},
            .input = {in.data(), N},
            .output = {out.data(), N},
            .A = A.data(),
            .D = D.data(),
            .dt_bias = bias.data(),
            .h0 = h0.data(),
            .starts = starts.data(),
            .lengths = lengths.data()};
  }
};

TEST_P(Kernels, ScanIsTheRecurrence) {
  const ScanData d;
  const auto [B, L, E, N] = std::tuple(d.B, d.L, d.E, d.N);
  std::vector<float> y(d.x.size()), h(d.h0.size()),
      found(static_cast<size_t>(B * scan_blocks(L) * N * E));
  selective_scan(d.scan(), y.data(), h.data(), found.data(), threads_for);
  for (int64_t b = 0; b < B; ++b)
    for (int64_t e = 0; e < E; ++e) {
      std::vector<double> state;
      for (int64_t n = 0; n < N; ++n) state.push_back(d.h0[at((b * E + e) * N + n)]);
      for (int64_t t = 0; t < L; ++t) {
        const int64_t token = b * L + t, i = token * E + e;
        if (t >= d.lengths[at(b)]) {
          ASSERT_EQ(y[at(i)], 0);
          continue;
        }
        const double delta = std::log1p(std::exp(double{d.dt[at(i)]} + d.bias[at(e)]));
        const double x = d.x[at(i)], z = d.z[at(i)];
        double sum = d.D[at(e)] * x;
        for (int64_t n = 0; n < N; ++n) {
          auto& s = state[at(n)];
          if (d.starts[at(token)]) s = 0;
          s = std::exp(delta * d.A[at(e * N + n)]) * s + delta * x * d.in[at(token * N + n)];
          sum += s * d.out[at(token * N + n)];
        }
        ASSERT_NEAR(y[at(i)], sum * silu(z), 1e-5 * (1 + std::abs(sum)));
      }
      for (int64_t n = 0; n < N; ++n)
        ASSERT_NEAR(h[at((b * E + e) * N + n)], state[at(n)], 1e-5 * (1 + std::abs(state[at(n)])));
    }
}

TEST_P(Kernels, ScanBackwardStaysInItsArrays) {
  const ScanData d;
  const auto scan = d.scan();
  std::vector<float> y(d.x.size()), h(d.h0.size()),
      found(static_cast<size_t>(d.B * scan_blocks(d.L) * d.N * d.E));
  selective_scan(scan, y.data(), h.data(), found.data(), serial_for);
  const int64_t tokens = d.B * d.L, states = d.E * d.N;
  written({tokens * d.E, tokens * d.E, tokens * d.E, tokens * d.N, tokens * d.N, d.B * states,
           d.B * d.E, d.B * d.E, d.B * states},
          [&](Arrays& g, const ParallelFor& parallel) {
            selective_scan_backward(scan, found.data(), {y.data(), d.E}, h.data(),
                                    {.x = g[0].data(),
                                     .dt = g[1].data(),
                                     .z = g[2].data(),
                                     .input = g[3].data(),
                                     .output = g[4].data(),
                                     .A = g[5].data(),
                                     .D = g[6].data(),
                                     .dt_bias = g[7].data(),
                                     .h0 = g[8].data()},
                                    parallel);
          });
}

// Two pieces over a pool of R rows; piece p's first three keys have a bias. With `holes`, keys that
// no query sees stand between the others, each with a pool row of its own.
struct AttentionData {
  static constexpr int64_t H = 6, G = 2, d = 13;
  int64_t T, R;
  std::vector<float> q, pool, bias, grad;
  std::vector<QueryRun> runs;
  std::vector<int64_t> index, from, until;
  int64_t S = 0, num_biased = 3;

  explicit AttentionData(bool holes, int64_t num_queries = 9, int64_t num_keys = 17)
      : T(num_queries + 4),
        R(num_keys + 6),
        q(normal(T * H * d, 1)),
        pool(normal(R * 2 * G * d, 2)),
        grad(normal(T * H * d, 4)),
        runs({{0, num_queries}, {num_queries, 4}}) {
    struct Key {
      int64_t index, from, until;
    };
    const auto some = normal(2 * 3, 3);
    for (int64_t p = 0; p < 2; ++p) {
      std::vector<Key> keys;
      for (int64_t j = 0; j < num_keys; ++j)
        keys.push_back({(p * 5 + j) % (R - 3), j % 4 == 3 ? 2 : 0, j % 5 == 4 ? 3 : num_queries});
      for (int64_t j = 0; j < 3; ++j) bias.push_back(some[at(p * 3 + j)]);
      if (holes) {
        // Among the keys with a bias, among the others, and last.
        keys.insert(keys.begin() + 1, Key{R - 3, 5, 3});
        keys.insert(keys.begin() + 8, Key{R - 2, 2, 2});
        keys.push_back({R - 1, 3, -1});
        bias.insert(bias.end() - 2, 0.5f);
      }
      for (const auto& key : keys) {
        index.push_back(key.index);
        from.push_back(key.from);
        until.push_back(key.until);
      }
      S = std::ssize(keys);
    }
    if (holes) num_biased = 4;
  }
  MemoryAttention attention() const {
    return {.num_pieces = 2,
            .num_keys = S,
            .num_heads = H,
            .num_kv_heads = G,
            .head = d,
            .pieces = runs.data(),
            .q = q.data(),
            .q_stride = H * d,
            .pool = pool.data(),
            .index = index.data(),
            .from = from.data(),
            .until = until.data(),
            .bias = bias.data(),
            .num_biased = num_biased};
  }
};

// The output, then the gradients of q, pool and bias, alone and with a thread a task.
Arrays attend(const AttentionData& data) {
  const auto m = data.attention();
  const auto result = [&](const ParallelFor& parallel) {
    Arrays out = {std::vector<float>(data.q.size(), NAN), std::vector<float>(data.q.size(), NAN),
                  std::vector<float>(data.pool.size(), 0),
                  std::vector<float>(data.bias.size(), NAN)};
    std::vector<float> log_sum(at(data.T * data.H), NAN);
    memory_attention(m, out[0].data(), log_sum.data(), parallel);
    memory_attention_backward(m, out[0].data(), log_sum.data(), data.grad.data(),
                              {.q = out[1].data(), .pool = out[2].data(), .bias = out[3].data()},
                              parallel);
    return out;
  };
  const auto alone = result(serial_for);
  for (const auto& out : alone)
    for (const auto value : out) EXPECT_TRUE(std::isfinite(value));
  EXPECT_EQ(result(threads_for), alone);
  return alone;
}

void expect_softmax(const AttentionData& data) {
  const auto m = data.attention();
  const auto out = attend(data)[0];
  for (int64_t p = 0; p < 2; ++p)
    for (int64_t n = 0; n < data.runs[at(p)].count; ++n)
      for (int64_t h = 0; h < data.H; ++h) {
        const int64_t place = ((data.runs[at(p)].first + n) * data.H + h) * data.d;
        std::vector<double> mixed(at(data.d), 0);
        double sum = 0;
        for (int64_t j = 0; j < data.S; ++j) {
          const int64_t key = p * data.S + j;
          if (n < m.from[key] || n >= m.until[key]) continue;
          const float* k = m.pool + (m.index[key] * 2 * data.G + h / 3) * data.d;
          const float* v = k + data.G * data.d;
          double score = 0;
          for (int64_t i = 0; i < data.d; ++i) score += double{m.q[place + i]} * k[i];
          score /= std::sqrt(static_cast<double>(data.d));
          if (j < m.num_biased) score += m.bias[p * m.num_biased + j];
          sum += std::exp(score);
          for (int64_t i = 0; i < data.d; ++i) mixed[at(i)] += std::exp(score) * v[i];
        }
        for (int64_t i = 0; i < data.d; ++i)
          ASSERT_NEAR(out[at(place + i)], mixed[at(i)] / sum, 1e-5);
      }
}

// One tile and one block of keys; several of both.
TEST_P(Kernels, AttentionIsItsSoftmax) {
  expect_softmax(AttentionData(false));
  expect_softmax(AttentionData(false, 70, 203));
}

void expect_no_trace_of_holes(int64_t num_queries, int64_t num_keys) {
  const AttentionData plain(false, num_queries, num_keys), holes(true, num_queries, num_keys);
  const auto expected = attend(plain), actual = attend(holes);
  for (const size_t i : {0, 1, 2}) EXPECT_EQ(actual[i], expected[i]) << i;
  // Of the bias: that of the hole is 0, the others are what they were.
  for (int64_t p = 0; p < 2; ++p)
    for (int64_t j = 0; j < 4; ++j)
      EXPECT_EQ(actual[3][at(p * 4 + j)], j == 1 ? 0 : expected[3][at(p * 3 + j - (j > 1))])
          << p << " " << j;
}

TEST_P(Kernels, AttentionIgnoresKeysThatNoQuerySees) {
  expect_no_trace_of_holes(9, 17);
  expect_no_trace_of_holes(70, 203);
}

// Two rows of tokens whose second is shorter, both with a document that begins inside.
struct HistoryData {
  int64_t B = 2, L = 37, C = 71, depth = 3;
  std::vector<float> x = normal(B * L * C, 1), tail = normal(B * depth * C, 2);
  std::vector<int64_t> positions, lengths = {L, 20};

  HistoryData() {
    for (int64_t b = 0; b < B; ++b)
      for (int64_t t = 0; t < L; ++t) positions.push_back(t < 9 ? 2 + t : t - 9);
  }
  History history() const {
    return {.B = B,
            .L = L,
            .C = C,
            .depth = depth,
            .x = {x.data(), C},
            .tail = tail.data(),
            .positions = positions.data(),
            .lengths = lengths.data()};
  }
};

TEST_P(Kernels, ConvolutionIsItsSum) {
  const HistoryData d;
  const int64_t K = d.depth + 1, numbers = d.B * d.L * d.C, kept = d.B * d.depth * d.C;
  const auto weight = normal(d.C * K, 3), bias = normal(d.C, 4), grad = normal(numbers, 5);
  const CausalConv conv{.history = d.history(), .weight = weight.data(), .bias = bias.data()};
  const auto out = written({numbers, kept}, [&](Arrays& to, const ParallelFor& parallel) {
    causal_conv1d_silu(conv, to[0].data(), to[1].data(), parallel);
  });
  for (int64_t b = 0; b < d.B; ++b)
    for (int64_t t = 0; t < d.L; ++t)
      for (int64_t c = 0; c < d.C; ++c) {
        double sum = bias[at(c)];
        for (int64_t i = 0; i <= conv.history.reach(b, t); ++i)
          sum += double{weight[at(c * K + K - 1 - i)]} * conv.history.row(b, t - i)[c];
        ASSERT_NEAR(out[0][at((b * d.L + t) * d.C + c)], t < d.lengths[at(b)] ? silu(sum) : 0,
                    1e-5);
      }
  written({numbers, kept, d.B * d.C * K, d.B * d.C}, [&](Arrays& to, const ParallelFor& parallel) {
    causal_conv1d_silu_backward(
        conv, {grad.data(), d.C}, d.tail.data(),
        {.x = to[0].data(), .tail = to[1].data(), .weight = to[2].data(), .bias = to[3].data()},
        parallel);
  });
}

TEST_P(Kernels, InnovationIsTheDistanceFromThePrediction) {
  const HistoryData d;
  const std::vector<float> c = {0.5f, 0.3f, 0.2f};
  const int64_t tokens = d.B * d.L, kept = d.B * d.depth * d.C;
  const auto grad = normal(tokens, 5);
  const Innovation in{.history = d.history(), .c = c.data()};
  const auto out = written({tokens, kept}, [&](Arrays& to, const ParallelFor& parallel) {
    innovation(in, to[0].data(), to[1].data(), parallel);
  });
  for (int64_t b = 0; b < d.B; ++b)
    for (int64_t t = 0; t < d.L; ++t) {
      double squares = 0;
      for (int64_t e = 0; e < d.C; ++e) {
        double error = in.history.row(b, t)[e];
        for (int64_t i = 1; i <= in.history.reach(b, t); ++i)
          error -= double{c[at(i - 1)]} * in.history.row(b, t - i)[e];
        squares += error * error / static_cast<double>(d.C);
      }
      ASSERT_NEAR(out[0][at(b * d.L + t)], t < d.lengths[at(b)] ? std::sqrt(squares) : 0, 1e-5);
    }
  written({tokens * d.C, kept}, [&](Arrays& to, const ParallelFor& parallel) {
    innovation_backward(in, out[0].data(), grad.data(), d.tail.data(), to[0].data(), to[1].data(),
                        parallel);
  });
}

TEST_P(Kernels, NormIsOfTheSum) {
  const int64_t R = 67, D = 71;
  const auto x = normal(R * D, 1), y = normal(R * D, 2), gain = normal(D, 3),
             grad = normal(R * D, 4);
  const Norm in{
      .R = R, .D = D, .x = {x.data(), D}, .y = {y.data(), D}, .gain = gain.data(), .eps = 0.1f};
  const auto out = written({R * D, R * D, R}, [&](Arrays& to, const ParallelFor& parallel) {
    rms_norm(in, to[0].data(), to[1].data(), to[2].data(), parallel);
  });
  for (int64_t r = 0; r < R; ++r) {
    double squares = 0;
    for (int64_t i = r * D; i < r * D + D; ++i) squares += std::pow(double{x[at(i)]} + y[at(i)], 2);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(D) + 0.1f);
    for (int64_t i = r * D; i < r * D + D; ++i)
      ASSERT_NEAR(out[1][at(i)], gain[at(i % D)] * scale * (x[at(i)] + y[at(i)]), 1e-5);
  }
  Norm back = in;
  back.x = {out[0].data(), D};
  back.y = {};
  written({R * D, D}, [&](Arrays& to, const ParallelFor& parallel) {
    rms_norm_backward(back, out[2].data(), {grad.data(), D}, {y.data(), D}, to[0].data(),
                      to[1].data(), parallel);
  });
}

TEST_P(Kernels, SwiGluIsItsProduct) {
  const int64_t R = 260, F = 71;
  const auto gate = normal(R * F, 1), up = normal(R * F, 2), grad = normal(R * F, 3);
  const SwiGlu in{.R = R, .F = F, .gate = {gate.data(), F}, .up = {up.data(), F}};
  const auto out = written({R * F}, [&](Arrays& to, const ParallelFor& parallel) {
    swiglu(in, to[0].data(), parallel);
  });
  for (size_t i = 0; i < gate.size(); ++i) ASSERT_NEAR(out[0][i], silu(gate[i]) * up[i], 1e-5);
  written({R * F, R * F}, [&](Arrays& to, const ParallelFor& parallel) {
    swiglu_backward(in, {grad.data(), F}, to[0].data(), to[1].data(), parallel);
  });
}

// In the order that is promised: blocks of 512, each from 0 by fused products, then their sum.
float promised_sum(const std::vector<float>& a, Matrix in_a, int64_t m, const std::vector<float>& b,
                   Matrix in_b, int64_t n, int64_t K, float start, bool add) {
  float sum = start;
  for (int64_t first = 0; first < K; first += 512) {
    float block = 0;
    for (int64_t k = first; k < std::min(K, first + 512); ++k)
      block = std::fma(a[at(m * in_a.row + k * in_a.column)], b[at(k * in_b.row + n * in_b.column)],
                       block);
    sum = add || first > 0 ? sum + block : block;
  }
  return add || K > 0 ? sum : 0;
}

// Strips have 6 or 8 rows, panels 16 or 32 columns; b is laid out 4,096 columns at a
// time, in 2^19 numbers or a block of k.
TEST_P(Kernels, ProductIsItsSumInOrder) {
  struct Shape {
    int64_t M, N, K;
  };
  for (const auto& [M, N, K] : {Shape{1, 1, 1},
                                {5, 15, 7},
                                {6, 16, 8},
                                {8, 32, 512},
                                {25, 33, 513},
                                {48, 40, 29},
                                {1301, 17, 40},
                                {30, 70, 0},
                                {0, 3, 4},
                                {3, 0, 4},
                                {7, 4101, 9},
                                {26, 530, 1025},
                                {9, 601, 1600}})
    for (const bool a_turned : {false, true})
      for (const bool b_turned : {false, true})
        for (const bool add : {false, true}) {
          const auto a = normal(M * K, 1), b = normal(K * N, 2), before = normal(M * N, 3);
          const Matrix in_a = {a.data(), a_turned ? 1 : K, a_turned ? M : 1};
          const Matrix in_b = {b.data(), b_turned ? 1 : N, b_turned ? K : 1};
          // Rows apart from each other: what lies between them stays as it is.
          const int64_t stride = N + 3;
          std::vector<float> alone(at(M > 0 ? (M - 1) * stride + N : 0), 7);
          for (int64_t m = 0; m < M; ++m)
            for (int64_t n = 0; n < N; ++n) alone[at(m * stride + n)] = before[at(m * N + n)];
          auto expected = alone, shared = alone;
          Product in = {M, N, K, in_a, in_b, alone.data(), stride, add};
          product(in, serial_for);
          in.out = shared.data();
          product(in, threads_for);
          for (int64_t m = 0; m < M; ++m)
            for (int64_t n = 0; n < N; ++n) {
              auto& sum = expected[at(m * stride + n)];
              sum = promised_sum(a, in_a, m, b, in_b, n, K, sum, add);
            }
          EXPECT_TRUE(alone == expected)
              << M << " " << N << " " << K << " " << a_turned << b_turned;
          EXPECT_TRUE(shared == expected)
              << M << " " << N << " " << K << " " << a_turned << b_turned;
        }
}

// Neither step is 1: every second row and every third column, or one number throughout.
TEST_P(Kernels, ProductTakesAnySteps) {
  const int64_t M = 50, N = 35, K = 21;
  const auto a = normal(2 * M * 3 * K, 1), b = normal(2 * K * 3 * N, 2);
  const Matrix in_b = {b.data(), 6 * N, 3};
  for (const Matrix& in_a : {Matrix{a.data(), 6 * K, 3}, {a.data(), 0, 0}}) {
    const auto out = written({M * N}, [&](Arrays& to, const ParallelFor& parallel) {
      product({M, N, K, in_a, in_b, to[0].data(), N}, parallel);
    });
    for (int64_t m = 0; m < M; ++m)
      for (int64_t n = 0; n < N; ++n)
        ASSERT_EQ(out[0][at(m * N + n)], promised_sum(a, in_a, m, b, in_b, n, K, 0, false));
  }
}

TEST_P(Kernels, RotaryTurnsThereAndBack) {
  const int64_t T = 1200, H = 3, half = 5, stride = H * 2 * half + 3;
  const auto x = normal(T * stride, 1), angle = normal(T * half, 2);
  std::vector<float> cosines, sines;
  for (const auto a : angle) {
    cosines.push_back(std::cos(a));
    sines.push_back(std::sin(a));
  }
  Rotary in{.T = T,
            .H = H,
            .half = half,
            .x = {x.data(), stride},
            .cos = cosines.data(),
            .sin = sines.data()};
  const auto turn = [&] {
    return written({T * H * 2 * half}, [&](Arrays& to, const ParallelFor& parallel) {
      rotate(in, to[0].data(), parallel);
    })[0];
  };
  const auto y = turn();
  const auto token = [&](int64_t i) { return i / (H * 2 * half); };
  const auto given = [&](int64_t i) { return x[at(token(i) * stride + i % (H * 2 * half))]; };
  for (int64_t i = 0; i < T * H * half; ++i) {
    const int64_t head = i / half, a = head * 2 * half + i % half, b = a + half;
    const float c = cosines[at(head / H * half + i % half)],
                s = sines[at(head / H * half + i % half)];
    ASSERT_NEAR(y[at(a)], given(a) * c - given(b) * s, 1e-5);
    ASSERT_NEAR(y[at(b)], given(b) * c + given(a) * s, 1e-5);
  }
  in.x = {y.data(), H * 2 * half};
  in.back = true;
  const auto again = turn();
  for (int64_t i = 0; i < std::ssize(again); ++i) ASSERT_NEAR(again[at(i)], given(i), 1e-5);
}

TEST_P(Kernels, CrossEntropyIsTheNegativeLogarithm) {
  for (const int64_t V : {1, 7, 8, 17, 100}) {
    const int64_t n = 20;
    const auto before = normal(n * V, 1);
    std::vector<int64_t> target;
    for (int64_t i = 0; i < n; ++i) target.push_back(i % 3 * (V - 1) / 2);
    const auto out = written({n * V, n}, [&](Arrays& to, const ParallelFor& parallel) {
      to[0] = before;
      cross_entropy(to[0].data(), target.data(), n, V, true, 2, to[1].data(), parallel);
    });
    const auto &x = out[0], &loss = out[1];
    for (size_t i = 0; i < at(n); ++i) {
      double sum = 0, gradient = 0;
      for (int64_t j = 0; j < V; ++j) {
        const auto at = i * static_cast<size_t>(V) + static_cast<size_t>(j);
        sum += std::exp(double{before[at]});
        gradient += x[at];
      }
      const auto wanted = i * static_cast<size_t>(V) + static_cast<size_t>(target[i]);
      EXPECT_NEAR(loss[i], std::log(sum) - before[wanted], 1e-5) << V;
      EXPECT_NEAR(gradient, 0, 1e-5) << V;
      EXPECT_NEAR(x[wanted], 2 * (std::exp(before[wanted]) / sum - 1), 1e-5) << V;
    }
  }
}

TEST(Selection, KeepLargestPrefersTheEarlierAndNumbers) {
  std::vector<int64_t> kept, scratch;
  keep_largest({1, NAN, 2, 1, INFINITY, 2}, 4, kept, scratch);
  EXPECT_EQ(kept, (std::vector<int64_t>{0, 2, 4, 5}));
  keep_largest({NAN, 0}, 1, kept, scratch);
  EXPECT_EQ(kept, (std::vector<int64_t>{1}));
  keep_largest({1, 2}, 5, kept, scratch);
  EXPECT_EQ(kept, (std::vector<int64_t>{0, 1}));
  keep_largest({}, 5, kept, scratch);
  EXPECT_TRUE(kept.empty());
}

TEST(Cpu, DenormalsAreFlushedOnlyInside) {
  volatile float tiny = 1e-39f;
  run(serial_for, 1, [&](int64_t) { EXPECT_EQ(tiny * 1.0f, 0.0f); });
  EXPECT_NE(tiny * 1.0f, 0.0f);
}

// Another rounding would give other bits in the thread that asks, and not in the pool's.
TEST(Cpu, TheCallersRoundingIsLeftOutsideAndRestored) {
  volatile float one = 1, tiny = 1e-10f;
  std::fesetround(FE_UPWARD);
  run(serial_for, 1, [&](int64_t) { EXPECT_EQ(one + tiny, 1.0f); });
  EXPECT_GT(one + tiny, 1.0f);
  std::fesetround(FE_TONEAREST);
}

TEST(Cpu, TargetsAreTheBestFirstAndAvx2Always) {
  const auto targets = simd_targets();
  ASSERT_FALSE(targets.empty());
  EXPECT_EQ(targets.back(), "AVX2");
  EXPECT_THROW(use_target("NEON"), base::Error);
}

TEST(Cpu, ACapLeavesTheBestThatIsNotAbove) {
  const auto best = simd_targets();
  cap_target("AVX2");
  EXPECT_EQ(simd_targets(), std::vector<std::string>{"AVX2"});
  cap_target("AVX3");
  EXPECT_EQ(simd_targets().back(), "AVX2");
  EXPECT_EQ(simd_targets().front(), std::ranges::count(best, "AVX3") ? "AVX3" : "AVX2");
  use_target("");
  EXPECT_EQ(simd_targets(), best);
  try {
    cap_target("AVX9");
    FAIL() << "nothing was thrown";
  } catch (const base::Error& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("BMOJO_SIMD: must be one of ")) << message;
    EXPECT_TRUE(message.ends_with(", got 'AVX9'")) << message;
  }
}

INSTANTIATE_TEST_SUITE_P(EveryTarget, Kernels, testing::ValuesIn(simd_targets()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace bmojo::kernels
