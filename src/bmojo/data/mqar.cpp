// Multi-query associative recall: P key-value pairs first, then every key is asked once; its value
// is due at the asked key.
//
//     k₁ v₁ . . k₂ v₂ … k_P v_P . . | gap | . k₃ . . k₁ …
//
// Keys come from the lower half of the vocabulary without replacement (0 is left for padding),
// values from the upper half. Keys stand at different even places below the span, by default
// without a place between them (span = 2 P). Question slot i is at position span + gap + 2 i.
// Other places hold padding or tokens of the upper half, so that a key stands nowhere but in its
// pair and in its question.

#include <numeric>
#include <optional>

#include "bmojo/base/error.h"
#include "bmojo/data/draws.h"
#include "bmojo/data/recall.h"
#include "bmojo/data/task.h"

namespace bmojo::data {
namespace {

struct Mqar {
  TaskKeys::Range pairs;
  int64_t length, vocabulary;
  std::optional<int64_t> given_span;
  TaskKeys::Range gap;
  bool padded;

  int64_t span(int64_t num_pairs) const { return given_span.value_or(2 * num_pairs); }

  void fill(base::Random& random, const TaskSequence& sequence) const {
    const auto& [ids, targets, sources] = sequence;
    const auto value = [&] { return draw_from(random, vocabulary / 2, vocabulary); };
    const int64_t num_pairs = draw_from(random, pairs.low, pairs.high + 1);
    for (auto& id : ids) id = padded ? 0 : value();
    const auto keys = draw_distinct(random, num_pairs, 1, vocabulary / 2);
    const int64_t first_slot = span(num_pairs) + draw_gap(random);
    const auto slots = draw_slots(random, num_pairs, (length - first_slot) / 2);
    const auto places = draw_places(random, num_pairs);
    for (int64_t p = 0; p < num_pairs; ++p) {
      const int64_t place = 2 * places[p], question = first_slot + 2 * slots[p];
      ids[place] = ids[question] = keys[p];
      ids[place + 1] = targets[question] = value();
      sources[question] = place + 1;
    }
  }

  // One gap is not drawn either.
  int64_t draw_gap(base::Random& random) const {
    return gap.low == gap.high ? gap.low : draw_from(random, gap.low, gap.high + 1);
  }

  // Where every place is taken nothing is drawn: sequences without a span are what they were
  // before there was one.
  std::vector<int64_t> draw_places(base::Random& random, int64_t num_pairs) const {
    if (span(num_pairs) > 2 * num_pairs)
      return draw_distinct(random, num_pairs, 0, span(num_pairs) / 2);
    std::vector<int64_t> places(num_pairs);
    std::iota(places.begin(), places.end(), 0);
    return places;
  }
};

void check(const Mqar& task) {
  const int64_t most = task.pairs.high, half = task.vocabulary / 2;
  base::require(
      most <= half - 1,
      "task mqar: vocab must have a key for each pair, got {} for {} pairs; at least {} is "
      "needed",
      task.vocabulary, most, 2 * (most + 1));
  const int64_t span = task.span(most);
  base::require(
      span >= 2 * most,
      "task mqar: span must be at least 2 x pairs = {}, got {}; span={} or pairs={} would fit",
      2 * most, span, 2 * most, span / 2);
  base::require(span % 2 == 0, "task mqar: span must be even, got {}; span={} or span={} would fit",
                span, span - 1, span + 1);
  require_length(
      {.task = "mqar",
       .formula = task.given_span ? "span + 2 x pairs + gap" : "4 x pairs + gap",
       .length = task.length,
       .pairs = most,
       .gap = task.gap.high,
       .needed = [&](int64_t pairs, int64_t gap) { return task.span(pairs) + 2 * pairs + gap; }});
}

}  // namespace

Task make_mqar(TaskKeys& keys) {
  Mqar mqar{};
  mqar.pairs = keys.range("pairs", 1);
  mqar.length = keys.number("length", 4, kMostTokens);
  mqar.vocabulary = keys.number("vocab", 4, kMostTokens, 8192);
  mqar.given_span = keys.number_if_given("span", 2, kMostTokens);
  mqar.gap = keys.range("gap", 0, 0);
  mqar.padded = keys.word("fill", {"random", "pad"}) == "pad";
  const auto text = keys.finish();
  check(mqar);
  return {.text = text,
          .legend = fmt::format("keys 1 … {}, values {} … {}", mqar.vocabulary / 2 - 1,
                                mqar.vocabulary / 2, mqar.vocabulary - 1),
          .length = mqar.length,
          .vocab_size = mqar.vocabulary,
          .fill = [mqar](base::Random& random, const TaskSequence& sequence) {
            mqar.fill(random, sequence);
          }};
}

}  // namespace bmojo::data
