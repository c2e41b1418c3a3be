// Multi-query associative recall: P key-value pairs first, then every key is asked once; its value
// is due at the asked key.
//
//     k₁ v₁ k₂ v₂ … k_P v_P | gap | . k₃ . . k₁ …
//
// Keys come from the lower half of the vocabulary without replacement (0 is left for padding),
// values from the upper half. Question slot i, at position 2 P + gap + 2 i, is drawn without
// replacement with probability ∝ (i + 1)^(a - 1), a = 0.01: most questions come soon, some late.
// Other places hold padding or tokens of the upper half, so that a key stands nowhere but in its
// pair and in its question.

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "bmojo/base/error.h"
#include "bmojo/data/task.h"

namespace bmojo {
namespace {

constexpr double kPower = 0.01 - 1;

struct Mqar {
  TaskKeys::Range pairs;
  int64_t length, vocabulary, gap;
  bool padded;

  int64_t num_slots(int64_t num_pairs) const { return (length - 2 * num_pairs - gap) / 2; }

  void fill(Random& random, std::span<int64_t> ids, std::span<int64_t> targets) const {
    const int64_t half = vocabulary / 2;
    const auto value = [&] {
      return half + static_cast<int64_t>(random.below(static_cast<uint64_t>(vocabulary - half)));
    };
    const auto num_pairs =
        pairs.low +
        static_cast<int64_t>(random.below(static_cast<uint64_t>(pairs.high - pairs.low + 1)));
    for (auto& id : ids) id = padded ? 0 : value();
    const auto keys = draw_keys(random, num_pairs, half);
    const auto slots = draw_slots(random, num_pairs);
    for (int64_t p = 0; p < num_pairs; ++p) {
      const int64_t question = 2 * num_pairs + gap + 2 * slots[p];
      ids[2 * p] = ids[question] = keys[p];
      ids[2 * p + 1] = targets[question] = value();
    }
  }

  // The first of a shuffle of 1 … half-1; places that were swapped are looked up, so that a large
  // vocabulary costs nothing.
  static std::vector<int64_t> draw_keys(Random& random, int64_t count, int64_t half) {
    std::vector<int64_t> keys;
    std::unordered_map<int64_t, int64_t> moved;  // place -> the key that stands there now
    const auto at = [&](int64_t place) {
      const auto it = moved.find(place);
      return it == moved.end() ? place : it->second;
    };
    for (int64_t i = 0; i < count; ++i) {
      const int64_t first = 1 + i;
      const auto place =
          first + static_cast<int64_t>(random.below(static_cast<uint64_t>(half - first)));
      keys.push_back(at(place));
      moved[place] = at(first);
    }
    return keys;
  }

  // The smallest of Exp(1) / weight are a weighted draw without replacement.
  std::vector<int64_t> draw_slots(Random& random, int64_t count) const {
    std::vector<std::pair<double, int64_t>> slots(num_slots(count));
    for (int64_t i = 0; i < std::ssize(slots); ++i)
      slots[i] = {-std::log(random.uniform()) / std::pow(static_cast<double>(i + 1), kPower), i};
    std::ranges::partial_sort(slots, slots.begin() + count);
    std::vector<int64_t> chosen;
    for (int64_t p = 0; p < count; ++p) chosen.push_back(slots[p].second);
    return chosen;
  }
};

void check(const Mqar& task) {
  const int64_t most = task.pairs.high, half = task.vocabulary / 2;
  require(most <= half - 1,
          "task mqar: vocab must have a key for each pair, got {} for {} pairs; at least {} is "
          "needed",
          task.vocabulary, most, 2 * (most + 1));
  const int64_t needed = 4 * most + task.gap;
  const int64_t fewer = (task.length - task.gap) / 4, shorter = task.length - 4 * most;
  std::vector<std::string> fits = {fmt::format("length={}", needed)};
  if (fewer > 0) fits.push_back(fmt::format("pairs={}", fewer));
  if (shorter >= 0) fits.push_back(fmt::format("gap={}", shorter));
  require(task.length >= needed,
          "task mqar: length must be at least 4 x pairs + gap = {}, got {}; {} would fit", needed,
          task.length, fmt::join(fits, " or "));
}

}  // namespace

Task make_mqar(TaskKeys& keys) {
  constexpr int64_t kMost = int64_t{1} << 30;
  Mqar mqar{};
  mqar.pairs = keys.range("pairs");
  mqar.length = keys.number("length", 4, kMost);
  mqar.vocabulary = keys.number("vocab", 4, kMost, 8192);
  mqar.gap = keys.number("gap", 0, kMost, 0);
  mqar.padded = keys.word("fill", {"random", "pad"}) == "pad";
  Task task{.text = keys.finish(),
            .length = mqar.length,
            .vocab_size = mqar.vocabulary,
            .fill = [mqar](Random& random, std::span<int64_t> ids, std::span<int64_t> targets) {
              mqar.fill(random, ids, targets);
            }};
  check(mqar);
  return task;
}

}  // namespace bmojo
