#include "bmojo/kernels/sample.h"

#include <algorithm>
#include <cmath>

#include "bmojo/base/error.h"
#include "bmojo/base/random.h"
#include "bmojo/kernels/cpu.h"
#include "bmojo/kernels/log_softmax.h"
#include "bmojo/kernels/selection.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bmojo/kernels/sample.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "bmojo/kernels/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bmojo::kernels::HWY_NAMESPACE {

// weight_i = exp((x_i - largest) / temperature)
void weigh(const float* x, int64_t n, float largest, float temperature, double* weight) {
  over_row(n, [&](int64_t i, int64_t count) BMOJO_BODY {
    HWY_ALIGN float lanes[kLanes];
    const V shifted = hn::Sub(load(x + i, count), all(largest));
    hn::Store(exp(hn::Div(shifted, all(temperature))), Floats(), lanes);
    std::copy_n(lanes, count, weight + i);
  });
}

}  // namespace bmojo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bmojo::kernels {
namespace {

HWY_EXPORT(weigh);

// Below, the most likely token has all the mass.
constexpr double kLeastTemperature = 1e-6;

void penalize(std::span<const float> logits, std::span<const int64_t> recent, double penalty,
              std::vector<float>& out) {
  out.assign(logits.begin(), logits.end());
  const auto factor = static_cast<float>(penalty);
  for (const auto id : recent) {
    base::require(id >= 0 && id < std::ssize(logits),
                  "sample: recent ids must be from 0 to {}, got {}", std::ssize(logits) - 1, id);
    const float x = logits[static_cast<size_t>(id)];
    out[static_cast<size_t>(id)] = x > 0 ? x / factor : x * factor;
  }
}

// The k largest logits' ids, rising.
void keep_top_k(int64_t k, SamplingScratch& s) {
  s.weight.assign(s.logits.begin(), s.logits.end());
  const auto n = std::ssize(s.weight);
  keep_largest(s.weight, k > 0 ? std::min(k, n) : n, s.kept, s.order);
}

// Leaves of the kept the fewest that hold the share p: they leave a heap, likeliest first.
void keep_top_p(double p, SamplingScratch& s) {
  const auto weight = [&](int64_t id) { return s.weight[static_cast<size_t>(id)]; };
  // By logit: two weights may be equal by rounding.
  const auto before = [&](int64_t i, int64_t j) {
    const float a = s.logits[static_cast<size_t>(i)], b = s.logits[static_cast<size_t>(j)];
    return a != b ? a > b : i < j;
  };
  const auto later = [&](int64_t i, int64_t j) { return before(j, i); };
  double total = 0, held = 0;
  for (const auto id : s.kept) total += weight(id);
  s.order = s.kept;
  std::make_heap(s.order.begin(), s.order.end(), later);
  auto end = s.order.end();
  int64_t last = s.order.front();
  do {
    std::pop_heap(s.order.begin(), end--, later);
    last = *end;
    held += weight(last);
  } while (end != s.order.begin() && held < p * total);
  std::erase_if(s.kept, [&](int64_t id) { return before(last, id); });
}

int64_t draw(const SamplingScratch& s, double uniform) {
  double total = 0;
  for (const auto id : s.kept) total += s.weight[static_cast<size_t>(id)];
  double left = uniform * total;
  int64_t last = s.kept.front();
  for (const auto id : s.kept) {
    const double weight = s.weight[static_cast<size_t>(id)];
    if (weight == 0) continue;
    last = id;
    left -= weight;
    if (left < 0) break;
  }
  return last;
}

int64_t sample_row(std::span<const float> logits, std::span<const int64_t> recent,
                   const Sampling& how, uint64_t seed, uint64_t number, SamplingScratch& s) {
  const auto n = std::ssize(logits);
  if (std::isnan(log_softmax(logits.data(), n).log_sum)) return -1;
  penalize(logits, recent, how.repetition_penalty, s.logits);
  const int64_t best = most_likely(s.logits.data(), n);
  if (how.temperature < kLeastTemperature) return best;
  keep_top_k(how.top_k, s);
  HWY_DYNAMIC_DISPATCH(weigh)
  (s.logits.data(), n, s.logits[static_cast<size_t>(best)], static_cast<float>(how.temperature),
   s.weight.data());
  if (how.top_p < 1) keep_top_p(how.top_p, s);
  // The likeliest weighs 1.
  std::erase_if(s.kept, [&](int64_t id) { return s.weight[static_cast<size_t>(id)] < how.min_p; });
  return draw(s, base::Random({seed, number}).uniform());
}

}  // namespace

int64_t sample(std::span<const float> logits, std::span<const int64_t> recent, const Sampling& how,
               uint64_t seed, uint64_t number, SamplingScratch& scratch) {
  base::require(!logits.empty(), "sample: logits must hold a number, got none");
  int64_t id = -1;
  run(serial_for, 1, [&](int64_t) { id = sample_row(logits, recent, how, seed, number, scratch); });
  return id;
}

}  // namespace bmojo::kernels
#endif
