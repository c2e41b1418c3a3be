// The kernels without torch, over arrays that end where the data ends: under the sanitizers every
// step beyond shows. What they compute is compared with plain loops here and with their references
// in nn/kernel.

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>

#include "bmojo/kernels/cpu.h"
#include "bmojo/kernels/cross_entropy.h"
#include "bmojo/kernels/memory_attention.h"
#include "bmojo/kernels/selection.h"
#include "bmojo/kernels/selective_scan.h"

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

TEST(Kernels, ScanIsTheRecurrence) {
  const ScanData d;
  const auto [B, L, E, N] = std::tuple(d.B, d.L, d.E, d.N);
  std::vector<float> y(d.x.size()), h(d.h0.size()),
      found(static_cast<size_t>(B * scan_blocks(L) * N * E));
  selective_scan(d.scan(), y.data(), h.data(), found.data(), threads_for);
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
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
        ASSERT_NEAR(y[at(i)], sum * z / (1 + std::exp(-z)), 1e-5 * (1 + std::abs(sum)));
      }
      for (int64_t n = 0; n < N; ++n)
        ASSERT_NEAR(h[at((b * E + e) * N + n)], state[at(n)], 1e-5 * (1 + std::abs(state[at(n)])));
    }
}

TEST(Kernels, ScanBackwardStaysInItsArrays) {
  const ScanData d;
  const auto scan = d.scan();
  std::vector<float> y(d.x.size()), h(d.h0.size()),
      found(static_cast<size_t>(d.B * scan_blocks(d.L) * d.N * d.E));
  selective_scan(scan, y.data(), h.data(), found.data(), serial_for);
  const auto gradients = [&](const ParallelFor& parallel) {
    std::vector<std::vector<float>> g;
    for (const auto size : {d.x.size(), d.x.size(), d.x.size(), d.in.size(), d.in.size(),
                            d.h0.size(), d.D.size() * 2, d.D.size() * 2, d.h0.size()})
      g.emplace_back(size, NAN);  // each must be written
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
    return g;
  };
  const auto alone = gradients(serial_for);
  for (const auto& g : alone)
    for (const auto value : g) ASSERT_TRUE(std::isfinite(value));
  EXPECT_EQ(gradients(threads_for), alone);
}

TEST(Kernels, AttentionStaysInItsArrays) {
  const int64_t T = 13, H = 6, G = 2, d = 5, R = 20, S = 17;
  const auto q = normal(T * H * d, 1), pool = normal(R * 2 * G * d, 2), bias = normal(2 * 3, 3),
             grad = normal(T * H * d, 4);
  const std::vector<QueryRun> runs = {{0, 9}, {9, 4}};
  std::vector<int64_t> index, from, until;
  for (int64_t p = 0; p < 2; ++p)
    for (int64_t j = 0; j < S; ++j) {
      index.push_back((p * 5 + j) % R);
      from.push_back(j % 4 == 3 ? 2 : 0);
      until.push_back(j % 5 == 4 ? 3 : 9);
    }
  const MemoryAttention m{.num_tokens = T,
                          .num_pieces = 2,
                          .num_keys = S,
                          .num_heads = H,
                          .num_kv_heads = G,
                          .head = d,
                          .pieces = runs.data(),
                          .q = q.data(),
                          .q_stride = H * d,
                          .pool = pool.data(),
                          .num_rows = R,
                          .index = index.data(),
                          .from = from.data(),
                          .until = until.data(),
                          .bias = bias.data(),
                          .num_biased = 3};
  std::vector<float> out(q.size(), NAN), log_sum(static_cast<size_t>(T * H), NAN);
  memory_attention(m, out.data(), log_sum.data(), threads_for);
  const auto gradients = [&](const ParallelFor& parallel) {
    std::vector<std::vector<float>> g = {std::vector<float>(q.size(), NAN),
                                         std::vector<float>(pool.size(), 0),
                                         std::vector<float>(bias.size(), NAN)};
    memory_attention_backward(m, out.data(), log_sum.data(), grad.data(),
                              {.q = g[0].data(), .pool = g[1].data(), .bias = g[2].data()},
                              parallel);
    return g;
  };
  const auto alone = gradients(serial_for);
  for (const auto& g : alone)
    for (const auto value : g) ASSERT_TRUE(std::isfinite(value));
  EXPECT_EQ(gradients(threads_for), alone);
}

TEST(Kernels, CrossEntropyIsTheNegativeLogarithm) {
  for (const int64_t V : {1, 7, 8, 17, 100}) {
    auto x = normal(3 * V, 1);
    const auto before = x;
    const std::vector<int64_t> target = {0, V / 2, V - 1};
    std::vector<float> loss(3);
    cross_entropy(x.data(), target.data(), 3, V, true, 2, loss.data(), serial_for);
    for (size_t i = 0; i < 3; ++i) {
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

TEST(Kernels, KeepLargestPrefersTheEarlierAndNumbers) {
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

TEST(Kernels, DenormalsAreFlushedOnlyInside) {
  volatile float tiny = 1e-39f;
  run(serial_for, 1, [&](int64_t) { EXPECT_EQ(tiny * 1.0f, 0.0f); });
  EXPECT_NE(tiny * 1.0f, 0.0f);
  EXPECT_FALSE(simd_targets().empty());
}

}  // namespace
}  // namespace bmojo::kernels
