// The layer's small arithmetic, scoring and sampling: the same bits on every instruction set, in
// any cut of the work, and near the exact numbers.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>

#include "bmojo/base/error.h"
#include "bmojo/base/random.h"
#include "bmojo/kernels/cpu.h"
#include "bmojo/kernels/cross_entropy.h"
#include "bmojo/kernels/eidetic_bias.h"
#include "bmojo/kernels/log_softmax.h"
#include "bmojo/kernels/negative_exp.h"
#include "bmojo/kernels/predictor_weights.h"
#include "bmojo/kernels/rotary_table.h"
#include "bmojo/kernels/sample.h"

namespace bmojo::kernels {
namespace {

using Floats = std::vector<float>;

Floats normal(int64_t count, unsigned seed, float scale = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> draw(0, scale);
  Floats out(static_cast<size_t>(count));
  for (auto& x : out) x = draw(engine);
  return out;
}

size_t at(int64_t i) { return static_cast<size_t>(i); }

constexpr auto kBackwards = [](int64_t n, const auto& task) {
  for (int64_t i = n - 1; i >= 0; --i) task(i);
};

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// What `make` gives on every instruction set of this CPU, which must be the same bits.
Floats on_every_target(const std::function<Floats()>& make) {
  const auto first = make();
  for (const auto& target : simd_targets()) {
    use_target(target);
    EXPECT_TRUE(same_bits(make(), first)) << target;
    use_target("");
  }
  return first;
}

TEST(NegativeExp, IsExactToThreeTenMillionthsInEveryLane) {
  for (const int64_t n : {1, 7, 8, 16, 37}) {
    const auto a_log = normal(n, 1, 3);
    const auto A = on_every_target([&] {
      Floats out(at(n), NAN);
      negative_exp(a_log.data(), n, out.data());
      return out;
    });
    for (int64_t i = 0; i < n; ++i) {
      const double exact = -std::exp(double{a_log[at(i)]});
      EXPECT_NEAR(A[at(i)] / exact, 1, 3e-7) << a_log[at(i)];
      float alone = NAN;
      negative_exp(&a_log[at(i)], 1, &alone);
      EXPECT_EQ(alone, A[at(i)]) << i;
    }
  }
}

TEST(PredictorWeights, AreAGeometricSeriesThatSumsToOne) {
  for (const double gamma : {0.25, 0.5, 0.9, 1.0})
    for (const int64_t k : {1, 2, 4, 9}) {
      const auto c = predictor_weights(k, gamma);
      ASSERT_EQ(std::ssize(c), k);
      EXPECT_NEAR(std::accumulate(c.begin(), c.end(), 0.0), 1, 1e-15);
      for (int64_t i = 0; i < k; ++i)
        EXPECT_NEAR(c[at(i)], c[0] * std::pow(gamma, static_cast<double>(i)), 1e-15);
    }
}

// Sets of m places, of which some are empty.
struct BiasData {
  int64_t P = 3, m = 21;
  float beta = 0.7f;
  Floats innovation = normal(P * m, 1), grad = normal(P * m, 2);
  std::unique_ptr<bool[]> there = std::make_unique<bool[]>(at(P * m));

  BiasData() {
    for (auto& x : innovation) x = std::abs(x);
    innovation[4] = 0;
    for (int64_t i = 0; i < P * m; ++i) there[at(i)] = i / m == 0 || i % 5 != 2;
    for (int64_t i = 2 * m; i < P * m; ++i) there[at(i)] = false;
  }
  EideticBias in() const {
    return {.P = P, .m = m, .innovation = innovation.data(), .there = there.get(), .beta = beta};
  }
  // In double, of one innovation changed by `step`.
  std::vector<double> exact(int64_t changed = 0, double step = 0, double beta_step = 0) const {
    std::vector<double> out(at(P * m), 0);
    for (int64_t p = 0; p < P; ++p) {
      double sum = 0, count = 0;
      for (int64_t i = p * m; i < p * m + m; ++i) {
        if (!there[at(i)]) continue;
        out[at(i)] = std::log(innovation[at(i)] + (i == changed ? step : 0) + 1e-6);
        sum += out[at(i)];
        ++count;
      }
      for (int64_t i = p * m; i < p * m + m; ++i)
        out[at(i)] = there[at(i)] ? (beta + beta_step) * (out[at(i)] - sum / count) : 0;
    }
    return out;
  }
};

TEST(EideticBias, IsTheLogarithmOverItsMean) {
  const BiasData d;
  const auto bias = on_every_target([&] {
    Floats out(d.innovation.size(), NAN);
    eidetic_bias(d.in(), out.data(), kBackwards);
    return out;
  });
  const auto exact = d.exact();
  for (size_t i = 0; i < bias.size(); ++i) EXPECT_NEAR(bias[i], exact[i], 3e-6) << i;
}

TEST(EideticBias, EmptyPlacesLeaveNoTrace) {
  const BiasData d;
  Floats bias(d.innovation.size(), NAN), members, expected;
  eidetic_bias(d.in(), bias.data(), serial_for);
  for (int64_t i = d.m; i < 2 * d.m; ++i) {
    if (!d.there[at(i)]) continue;
    members.push_back(d.innovation[at(i)]);
    expected.push_back(bias[at(i)]);
  }
  Floats alone(members.size(), NAN);
  eidetic_bias({.m = std::ssize(members), .innovation = members.data(), .beta = d.beta},
               alone.data(), serial_for);
  EXPECT_LT(std::ssize(members), d.m);
  EXPECT_TRUE(same_bits(alone, expected));
}

TEST(EideticBias, GradientIsTheSlope) {
  const BiasData d;
  const auto numbers = d.innovation.size();
  const auto grads = on_every_target([&] {
    Floats out(numbers + at(d.P), NAN);
    eidetic_bias_backward(d.in(), d.grad.data(), out.data(), out.data() + numbers, kBackwards);
    return out;
  });
  const auto loss = [&](int64_t changed, double step, double beta_step) {
    const auto bias = d.exact(changed, step, beta_step);
    return std::inner_product(bias.begin(), bias.end(), d.grad.begin(), 0.0);
  };
  for (int64_t i = 0; i < std::ssize(d.innovation); ++i) {
    const double step = 1e-4 * (d.innovation[at(i)] + 1e-6);
    const double slope = (loss(i, step, 0) - loss(i, -step, 0)) / (2 * step);
    EXPECT_NEAR(grads[at(i)], slope, 1e-5 * (1 + std::abs(slope))) << i;
  }
  double to_beta = 0;
  for (int64_t p = 0; p < d.P; ++p) to_beta += grads[numbers + at(p)];
  EXPECT_NEAR(to_beta, (loss(0, 0, 1e-3) - loss(0, 0, -1e-3)) / 2e-3, 1e-5);
}

TEST(RotaryTable, FrequenciesAreTheNearestDoublesOrTheNext) {
  for (const double theta : {1e4, 1e5, 1e6, 2.0, 1.0, 0.5})
    for (const int64_t half : {1, 3, 32, 64}) {
      const auto f = rotary_frequencies(half, theta);
      ASSERT_EQ(std::ssize(f), half);
      EXPECT_EQ(f[0], 1);
      for (int64_t j = 0; j < half; ++j) {
        const long double exact =
            std::pow(static_cast<long double>(theta), -static_cast<long double>(j) / half);
        EXPECT_NEAR(static_cast<double>(f[at(j)] / exact), 1, 3e-16) << theta << " " << j;
      }
    }
  EXPECT_THROW(rotary_frequencies(4, 0), base::Error);
}

// Half a unit in the last place of a float below 1 is 2^-25.
TEST(RotaryTable, IsExactToItsLastPlaceAtEveryPosition) {
  std::vector<int64_t> position = {0, 1, 2, 3, 11, 710, 103993, 1 << 20, 1 << 24, (1 << 24) + 1};
  std::mt19937 engine(1);
  for (int i = 0; i < 500; ++i)
    position.push_back(std::uniform_int_distribution<int64_t>(0, 1 << (i % 25))(engine));
  for (const int64_t half : {1, 5, 8, 32}) {
    const auto f = rotary_frequencies(half, 1e4);
    const int64_t T = std::ssize(position), numbers = T * half;
    const RotaryTable in{.T = T, .half = half, .position = position.data(), .frequency = f.data()};
    const auto table = on_every_target([&] {
      Floats out(at(2 * numbers), NAN);
      rotary_table(in, out.data(), out.data() + numbers, kBackwards);
      return out;
    });
    for (int64_t i = 0; i < numbers; ++i) {
      const double angle = static_cast<double>(position[at(i / half)]) * f[at(i % half)];
      ASSERT_NEAR(table[at(i)], std::cos(angle), 0x1p-25 + 1e-15) << angle;
      ASSERT_NEAR(table[at(numbers + i)], std::sin(angle), 0x1p-25 + 1e-15) << angle;
    }
    for (int64_t t = 0; t < T; t += 7) {  // a row of its position alone
      Floats alone(at(2 * half), NAN),
          expected(table.begin() + t * half, table.begin() + (t + 1) * half);
      expected.insert(expected.end(), table.begin() + numbers + t * half,
                      table.begin() + numbers + (t + 1) * half);
      rotary_table({.T = 1, .half = half, .position = &position[at(t)], .frequency = f.data()},
                   alone.data(), alone.data() + half, serial_for);
      ASSERT_TRUE(same_bits(alone, expected)) << t;
    }
  }
}

// Each row scored with the others, and what the loss says of it.
TEST(ScoreRows, AreTheLogarithmsThatTheLossHas) {
  for (const int64_t V : {1, 7, 8, 17, 100}) {
    const int64_t n = 20, stride = V + 3;
    const auto x = normal(n * stride, 1, 5);
    std::vector<int64_t> target, best(at(n), -1);
    for (int64_t i = 0; i < n; ++i) target.push_back(i % 3 * (V - 1) / 2);
    const auto out = on_every_target([&] {
      Floats log_p(at(2 * n), NAN);
      score_rows({x.data(), stride}, n, V, target.data(),
                 {.target = log_p.data(), .best = best.data(), .best_log_p = log_p.data() + n},
                 kBackwards);
      return log_p;
    });
    for (int64_t i = 0; i < n; ++i) {
      const Floats row(x.begin() + i * stride, x.begin() + i * stride + V);
      const auto largest = std::max_element(row.begin(), row.end());
      double sum = 0;
      for (const auto value : row) sum += std::exp(double{value} - *largest);
      EXPECT_NEAR(out[at(i)], row[at(target[at(i)])] - *largest - std::log(sum), 3e-6);
      EXPECT_NEAR(out[at(n + i)], -std::log(sum), 1e-6);
      EXPECT_EQ(best[at(i)], largest - row.begin());
      EXPECT_EQ(best[at(i)], most_likely(row.data(), V));
      EXPECT_EQ(out[at(i)], log_softmax(row.data(), V).log_p(row[at(target[at(i)])]));
      Floats lost = row;
      float loss = NAN;
      cross_entropy(lost.data(), &target[at(i)], 1, V, false, 1, &loss, serial_for);
      EXPECT_EQ(out[at(i)], -loss);
    }
  }
}

TEST(ScoreRows, TakeTheLowestOfEqualsAndNothingFromNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const int64_t V : {3, 8, 40}) {
    on_every_target([&] {
      Floats row(at(V), -1);
      row[at(V - 2)] = row[at(V - 1)] = 2;
      EXPECT_EQ(most_likely(row.data(), V), V - 2);
      for (const float broken : {NAN, kInfinity}) {
        row[1] = broken;
        const int64_t target = 0;
        int64_t best = -1;
        float log_p = 0, best_log_p = 0;
        score_rows({row.data(), V}, 1, V, &target,
                   {.target = &log_p, .best = &best, .best_log_p = &best_log_p}, serial_for);
        EXPECT_TRUE(std::isnan(log_p) && std::isnan(best_log_p));
        EXPECT_EQ(best, 0);
      }
      const Floats nothing(at(V), -kInfinity);
      EXPECT_TRUE(std::isnan(log_softmax(nothing.data(), V).log_sum));
      return Floats{};
    });
  }
}

// The definition, in double and with everything sorted.
int64_t expected_draw(const Floats& logits, const std::vector<int64_t>& recent, const Sampling& how,
                      uint64_t seed, uint64_t number) {
  std::vector<double> x(logits.begin(), logits.end());
  for (size_t id = 0; id < x.size(); ++id)
    if (std::ranges::count(recent, static_cast<int64_t>(id)))
      x[id] = x[id] > 0 ? x[id] / how.repetition_penalty : x[id] * how.repetition_penalty;
  std::vector<size_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](size_t i, size_t j) { return x[i] > x[j]; });
  if (how.temperature == 0) return static_cast<int64_t>(order[0]);
  if (how.top_k > 0) order.resize(std::min(order.size(), at(how.top_k)));
  const auto p = [&](size_t id) { return std::exp((x[id] - x[order[0]]) / how.temperature); };
  double total = 0, held = 0;
  for (const auto id : order) total += p(id);
  size_t kept = 0;
  for (; kept < order.size() && (kept == 0 || held < how.top_p * total); ++kept)
    held += p(order[kept]);
  order.resize(kept);
  std::erase_if(order, [&](size_t id) { return p(id) < how.min_p; });
  std::ranges::sort(order);
  total = 0;
  for (const auto id : order) total += p(id);
  double left = base::Random({seed, number}).uniform() * total;
  for (const auto id : order)
    if ((left -= p(id)) < 0) return static_cast<int64_t>(id);
  return static_cast<int64_t>(order.back());
}

TEST(Sample, IsItsDefinition) {
  const auto logits = normal(301, 1, 2);
  const std::vector<int64_t> recent = {5, 200, 5, 17, most_likely(logits.data(), 301)};
  const std::vector<Sampling> ways = {
      {},
      {.temperature = 0},
      {.temperature = 0.4},
      {.top_k = 1},
      {.top_k = 7},
      {.top_k = 1000},
      {.top_p = 0.6},
      {.top_p = 0},
      {.min_p = 0.1},
      {.min_p = 1},
      {.repetition_penalty = 3},
      {.temperature = 0, .repetition_penalty = 30},
      {.temperature = 1.7, .top_k = 20, .top_p = 0.8, .min_p = 0.05, .repetition_penalty = 1.3},
  };
  SamplingScratch scratch;
  for (size_t way = 0; way < ways.size(); ++way)
    on_every_target([&] {
      Floats ids;
      for (uint64_t number = 0; number < 100; ++number) {
        const auto id = sample(logits, recent, ways[way], 7, number, scratch);
        EXPECT_EQ(id, expected_draw(logits, recent, ways[way], 7, number)) << way << " " << number;
        ids.push_back(static_cast<float>(id));
      }
      return ids;
    });
}

// Of 20,000 draws each token has its share to 5 standard deviations (of a fixed seed).
TEST(Sample, DrawsEachTokenAsOftenAsItIsLikely) {
  const auto logits = normal(12, 3);
  const auto total = log_softmax(logits.data(), 12);
  std::vector<double> count(12, 0);
  SamplingScratch scratch;
  constexpr double kDraws = 20000;
  for (uint64_t number = 0; number < kDraws; ++number)
    ++count[at(sample(logits, {}, {}, 1, number, scratch))];
  for (size_t id = 0; id < 12; ++id) {
    const double p = std::exp(total.log_p(logits[id]));
    EXPECT_NEAR(count[id] / kDraws, p, 5 * std::sqrt(p * (1 - p) / kDraws)) << id;
  }
}

TEST(Sample, PenaltyLowersARecentTokenOnceWhateverItsSign) {
  SamplingScratch scratch;
  const Sampling greedy{.temperature = 0, .repetition_penalty = 2};
  const Floats positive = {3, 2}, negative = {-1, -1.5f};
  EXPECT_EQ(sample(positive, {}, greedy, 0, 0, scratch), 0);
  EXPECT_EQ(sample(positive, std::vector<int64_t>{0}, greedy, 0, 0, scratch), 1);
  EXPECT_EQ(sample(Floats{3, 1}, std::vector<int64_t>{0, 0, 0}, greedy, 0, 0, scratch), 0);
  EXPECT_EQ(sample(negative, std::vector<int64_t>{0}, greedy, 0, 0, scratch), 1);
}

TEST(Sample, RefusesWhatIsNoDistribution) {
  SamplingScratch scratch;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const double temperature : {0.0, 1.0}) {
    const Sampling how{.temperature = temperature};
    EXPECT_EQ(sample(Floats{1, NAN, 2}, {}, how, 1, 1, scratch), -1);
    EXPECT_EQ(sample(Floats{1, kInfinity, 2}, {}, how, 1, 1, scratch), -1);
    EXPECT_EQ(sample(Floats{-kInfinity, -kInfinity}, {}, how, 1, 1, scratch), -1);
    for (uint64_t number = 0; number < 20; ++number)
      EXPECT_EQ(sample(Floats{-kInfinity, 1, -kInfinity}, {}, how, 1, number, scratch), 1);
  }
  EXPECT_THROW(sample(Floats{}, {}, {}, 1, 1, scratch), base::Error);
  EXPECT_THROW(sample(Floats{1, 2}, std::vector<int64_t>{2}, {}, 1, 1, scratch), base::Error);
}

}  // namespace
}  // namespace bmojo::kernels
