// memory_attention_steps gives the bits of memory_attention, for one query and for many.

#include "bmojo/kernels/memory_attention_step.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "bmojo/kernels/cpu.h"
#include "bmojo/kernels/memory_attention.h"

namespace bmojo::kernels {
namespace {

size_t at(int64_t i) { return static_cast<size_t>(i); }

// Tasks with an even number on one thread, the others on another.
void two_threads(int64_t n, const Task& task) {
  std::thread other([&] {
    for (int64_t i = 1; i < n; i += 2) task(i);
  });
  for (int64_t i = 0; i < n; i += 2) task(i);
  other.join();
}

// As bits, so that -0 is not 0; of a NaN, only that it is one.
std::vector<uint32_t> bits(const std::vector<float>& x) {
  std::vector<uint32_t> out;
  for (const auto value : x)
    out.push_back(std::isnan(value) ? 0x7FC00000 : std::bit_cast<uint32_t>(value));
  return out;
}

enum class Kind { kPlain, kHuge, kTiny, kSpecial, kNegativeZero };

// One token's query, and its rows in an array for each run: a step beyond one shows under the
// sanitizers.
struct Token {
  std::vector<float> q, bias;
  std::vector<float> runs[4];
};

struct Draw {
  int64_t H, G, d;
  Kind kind;
  std::mt19937 engine;
  std::vector<Token> tokens;

  int64_t uniform(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine);
  }
  std::vector<float> numbers(int64_t count, float scale) {
    std::normal_distribution<float> draw(0, scale);
    std::vector<float> out(at(count));
    for (auto& x : out) x = draw(engine);
    return out;
  }
  std::vector<float> rows(int64_t count) {
    auto out = numbers(count * 2 * G * d, kind == Kind::kTiny ? 1e-20f : 1);
    constexpr float inf = std::numeric_limits<float>::infinity();
    if (kind == Kind::kSpecial && !out.empty())
      for (int64_t i = uniform(0, 3); i > 0; --i)
        out[at(uniform(0, std::ssize(out) - 1))] =
            std::vector{NAN, inf, -inf, 3e38f, -3e38f}[at(uniform(0, 4))];
    if (kind == Kind::kNegativeZero)
      for (int64_t i = 0; i < std::ssize(out); ++i)
        if (i / (G * d) % 2 == 1) out[at(i)] = -0.0f;
    return out;
  }
  Token token() {
    Token t;
    t.q = numbers(H * d, kind == Kind::kHuge ? 300 : kind == Kind::kTiny ? 1e-20f : 1);
    const int64_t num_runs = uniform(1, 4);
    const int64_t num_keys = uniform(1, uniform(0, 3) == 0 ? 700 : 90);
    int64_t left = num_keys;
    for (int64_t i = 0; i < num_runs; ++i) {
      const int64_t count = i + 1 == num_runs ? left : uniform(0, left);
      t.runs[i] = rows(count);
      left -= count;
    }
    if (uniform(0, 1) == 0) t.bias = numbers(uniform(1, num_keys), 3);
    return t;
  }
  explicit Draw(unsigned seed) : engine(seed) {
    G = uniform(1, 3);
    H = G * (uniform(0, 9) == 0 ? 19 : uniform(1, 8));
    d = uniform(0, 3) == 0 ? 16 * uniform(1, 5) : uniform(1, 80);
    kind = static_cast<Kind>(uniform(0, 4));
    for (int64_t n = uniform(1, 9); n > 0; --n) tokens.push_back(token());
  }
};

std::vector<float> by_memory_attention(const Draw& draw, const Token& token) {
  std::vector<float> pool, out(token.q.size(), 7);
  for (const auto& rows : token.runs) pool.insert(pool.end(), rows.begin(), rows.end());
  const int64_t S = std::ssize(pool) / (2 * draw.G * draw.d);
  std::vector<int64_t> index(at(S)), from(at(S), 0), until(at(S), 1);
  std::iota(index.begin(), index.end(), 0);
  const QueryRun piece{0, 1};
  memory_attention({.num_pieces = 1,
                    .num_keys = S,
                    .num_heads = draw.H,
                    .num_kv_heads = draw.G,
                    .head = draw.d,
                    .pieces = &piece,
                    .q = token.q.data(),
                    .q_stride = draw.H * draw.d,
                    .pool = pool.data(),
                    .index = index.data(),
                    .from = from.data(),
                    .until = until.data(),
                    .bias = token.bias.data(),
                    .num_biased = std::ssize(token.bias)},
                   out.data(), nullptr, serial_for);
  return out;
}

std::vector<std::vector<float>> by_steps(const Draw& draw, const ParallelFor& parallel) {
  std::vector<std::vector<float>> out;
  for (const auto& token : draw.tokens) out.emplace_back(token.q.size(), 7);
  std::vector<AttentionStep> steps;
  for (size_t n = 0; n < out.size(); ++n) {
    const auto& token = draw.tokens[n];
    AttentionStep step{.q = token.q.data(),
                       .runs = {},
                       .bias = token.bias.data(),
                       .num_biased = std::ssize(token.bias),
                       .out = out[n].data()};
    for (size_t i = 0; i < 4; ++i)
      step.runs[i] = {token.runs[i].data(), std::ssize(token.runs[i]) / (2 * draw.G * draw.d)};
    steps.push_back(step);
  }
  memory_attention_steps({draw.H, draw.G, draw.d}, steps, parallel);
  return out;
}

// With each instruction set that this CPU has.
class MemoryAttentionStep : public testing::TestWithParam<std::string> {
 protected:
  MemoryAttentionStep() { use_target(GetParam()); }
  ~MemoryAttentionStep() override { use_target(""); }
};

TEST_P(MemoryAttentionStep, IsMemoryAttentionBitForBit) {
  for (unsigned seed = 0; seed < 120; ++seed) {
    const Draw draw(seed);
    SCOPED_TRACE(fmt::format("seed {}: H {}, G {}, d {}, kind {}, {} tokens", seed, draw.H, draw.G,
                             draw.d, static_cast<int>(draw.kind), draw.tokens.size()));
    const auto alone = by_steps(draw, serial_for), shared = by_steps(draw, two_threads);
    for (size_t n = 0; n < alone.size(); ++n) {
      SCOPED_TRACE(fmt::format("token {}", n));
      const auto expected = bits(by_memory_attention(draw, draw.tokens[n]));
      ASSERT_EQ(bits(alone[n]), expected);
      ASSERT_EQ(bits(shared[n]), expected);
    }
  }
}

// Query t of a whole text sees its last w keys, and the first three with a bias.
TEST_P(MemoryAttentionStep, WholeIsSteps) {
  constexpr int64_t T = 150, H = 6, G = 2, d = 40, w = 70, R = T + 3, row = 2 * G * d;
  Draw draw(1);
  const auto q = draw.numbers(T * H * d, 2), pool = draw.numbers(R * row, 1),
             bias = draw.numbers(3, 3);
  std::vector<int64_t> index(at(R)), from(at(R), 0), until(at(R), T);
  std::iota(index.begin(), index.end(), 0);
  for (int64_t t = 0; t < T; ++t) {
    from[at(3 + t)] = t;
    until[at(3 + t)] = t + w;
  }
  const QueryRun piece{0, T};
  std::vector<float> whole(q.size(), 7), steps(q.size(), 7);
  memory_attention({.num_pieces = 1,
                    .num_keys = R,
                    .num_heads = H,
                    .num_kv_heads = G,
                    .head = d,
                    .pieces = &piece,
                    .q = q.data(),
                    .q_stride = H * d,
                    .pool = pool.data(),
                    .index = index.data(),
                    .from = from.data(),
                    .until = until.data(),
                    .bias = bias.data(),
                    .num_biased = 3},
                   whole.data(), nullptr, serial_for);
  for (int64_t t = 0; t < T; ++t) {
    const int64_t first = std::max<int64_t>(0, t - w + 1);
    const AttentionStep step{
        .q = q.data() + t * H * d,
        .runs = {{pool.data(), 3}, {}, {pool.data() + (3 + first) * row, t + 1 - first}, {}},
        .bias = bias.data(),
        .num_biased = 3,
        .out = steps.data() + t * H * d};
    memory_attention_steps({H, G, d}, {&step, 1}, serial_for);
  }
  EXPECT_TRUE(bits(steps) == bits(whole));
}

INSTANTIATE_TEST_SUITE_P(EveryTarget, MemoryAttentionStep, testing::ValuesIn(simd_targets()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace bmojo::kernels
