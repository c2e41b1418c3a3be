#include "bmojo/data/recall.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "bmojo/base/error.h"

namespace bmojo::data {
namespace {

constexpr double kPower = 0.01 - 1;

// The largest of 0 … high that fits, where all below it do; -1 where not even 0 does.
int64_t most(int64_t high, const std::function<bool(int64_t)>& fits) {
  int64_t low = -1;
  while (low < high) {
    const int64_t middle = high - (high - low) / 2;
    fits(middle) ? low = middle : high = middle - 1;
  }
  return low;
}

}  // namespace

// The smallest of Exp(1) / weight are a weighted draw without replacement.
std::vector<int64_t> draw_slots(base::Random& random, int64_t count, int64_t num_slots) {
  std::vector<std::pair<double, int64_t>> slots(num_slots);
  for (int64_t i = 0; i < num_slots; ++i)
    slots[i] = {-std::log(random.uniform()) / std::pow(static_cast<double>(i + 1), kPower), i};
  std::ranges::partial_sort(slots, slots.begin() + count);
  std::vector<int64_t> chosen;
  for (int64_t p = 0; p < count; ++p) chosen.push_back(slots[p].second);
  return chosen;
}

void require_length(const LengthRule& rule) {
  const auto fits = [&](int64_t pairs, int64_t gap) {
    return rule.needed(pairs, gap) <= rule.length;
  };
  if (fits(rule.pairs, rule.gap)) return;
  const int64_t needed = rule.needed(rule.pairs, rule.gap);
  const int64_t pairs = most(rule.pairs, [&](int64_t p) { return fits(p, rule.gap); });
  const int64_t gap = most(rule.gap, [&](int64_t g) { return fits(rule.pairs, g); });
  std::vector<std::string> remedies = {fmt::format("length={}", needed)};
  if (pairs > 0) remedies.push_back(fmt::format("pairs={}", pairs));
  if (gap >= 0) remedies.push_back(fmt::format("gap={}", gap));
  base::fail("task {}: length must be at least {} = {}, got {}; {} would fit", rule.task,
             rule.formula, needed, rule.length, fmt::join(remedies, " or "));
}

}  // namespace bmojo::data
