// Fuzzy associative recall: keys and values are motifs of one to `motif` tokens.
//
//     k₁ k₁ v₁ k₂ v₂ v₂ v₂ … k_P k_P k_P v_P | gap | . k₂ v₂ v₂ v₂ . . k₁ k₁ v₁ …
//
// A question is the pair once more: each token of the value is due one place before it stands, the
// first at the key's last token. Key motifs are of the lower half of the vocabulary without 0,
// value motifs of the upper half. No key is a prefix or a suffix of another: the tokens of a
// question name one pair, read from either end. Questions may take 2 motif tokens: slot i is at
// 2 motif i behind pairs and gap. Other places hold tokens of the upper half.

#include <algorithm>

#include "bmojo/base/error.h"
#include "bmojo/data/draws.h"
#include "bmojo/data/recall.h"
#include "bmojo/data/task.h"

namespace bmojo::data {
namespace {

using Motif = std::vector<int64_t>;

bool is_ambiguous(const Motif& a, const Motif& b) {
  const auto& [shorter, longer] =
      std::minmax(a, b, [](auto& x, auto& y) { return x.size() < y.size(); });
  return std::equal(shorter.begin(), shorter.end(), longer.begin()) ||
         std::equal(shorter.rbegin(), shorter.rend(), longer.rbegin());
}

struct FuzzyMqar {
  TaskKeys::Range pairs;
  int64_t length, vocabulary, gap, motif;

  void fill(base::Random& random, const TaskSequence& sequence) const {
    const auto& [ids, targets, sources] = sequence;
    const int64_t half = vocabulary / 2;
    const int64_t num_pairs = draw_from(random, pairs.low, pairs.high + 1);
    for (auto& id : ids) id = draw_from(random, half, vocabulary);
    const auto keys = draw_keys(random, num_pairs);
    std::vector<Motif> values;
    std::vector<int64_t> places;  // of each value's first token
    auto* end = ids.data();
    for (const auto& key : keys) {
      values.push_back(draw_motif(random, half, vocabulary));
      end = std::ranges::copy(key, end).out;
      places.push_back(end - ids.data());
      end = std::ranges::copy(values.back(), end).out;
    }
    const int64_t first_slot = end - ids.data() + gap;
    const auto slots = draw_slots(random, num_pairs, (length - first_slot) / (2 * motif));
    for (int64_t p = 0; p < num_pairs; ++p) {
      const int64_t question = first_slot + 2 * motif * slots[p];
      const int64_t answer = question + std::ssize(keys[p]);
      std::ranges::copy(keys[p], ids.begin() + question);
      std::ranges::copy(values[p], ids.begin() + answer);
      std::ranges::copy(values[p], targets.begin() + answer - 1);
      for (int64_t i = 0; i < std::ssize(values[p]); ++i) sources[answer - 1 + i] = places[p] + i;
    }
  }

  // Tokens of low … high-1, every length as likely.
  Motif draw_motif(base::Random& random, int64_t low, int64_t high) const {
    Motif tokens(draw_from(random, 1, motif + 1));
    for (auto& token : tokens) token = draw_from(random, low, high);
    return tokens;
  }

  // A key that is ambiguous beside those before it is drawn anew, with its length. check() leaves
  // half of all tokens unused as first and as last ones, so a few draws are enough.
  std::vector<Motif> draw_keys(base::Random& random, int64_t count) const {
    std::vector<Motif> keys;
    while (std::ssize(keys) < count) {
      const auto key = draw_motif(random, 1, vocabulary / 2);
      const auto clashes = [&](const Motif& other) { return is_ambiguous(key, other); };
      if (std::ranges::none_of(keys, clashes)) keys.push_back(key);
    }
    return keys;
  }
};

void check(const FuzzyMqar& task) {
  const int64_t most = task.pairs.high;
  base::require(
      task.vocabulary >= 4 * most + 2,
      "task fuzzy-mqar: vocab must have two key tokens for each pair, got {} for {} pairs; at "
      "least {} is needed",
      task.vocabulary, most, 4 * most + 2);
  require_length(
      {.task = "fuzzy-mqar",
       .formula = "4 x motif x pairs + gap",
       .length = task.length,
       .pairs = most,
       .gap = task.gap,
       .needed = [&](int64_t pairs, int64_t gap) { return 4 * task.motif * pairs + gap; }});
}

}  // namespace

Task make_fuzzy_mqar(TaskKeys& keys) {
  FuzzyMqar fuzzy{};
  fuzzy.pairs = keys.range("pairs", 1);
  fuzzy.length = keys.number("length", 4, kMostTokens);
  fuzzy.vocabulary = keys.number("vocab", 4, kMostTokens, 8192);
  fuzzy.gap = keys.number("gap", 0, kMostTokens, 0);
  fuzzy.motif = keys.number("motif", 1, 64, 3);
  const auto text = keys.finish();
  check(fuzzy);
  const int64_t half = fuzzy.vocabulary / 2;
  return {.text = text,
          .legend = fmt::format("keys of 1 … {}, values of {} … {}", half - 1, half,
                                fuzzy.vocabulary - 1),
          .length = fuzzy.length,
          .vocab_size = fuzzy.vocabulary,
          .fill = [fuzzy](base::Random& random, const TaskSequence& sequence) {
            fuzzy.fill(random, sequence);
          }};
}

}  // namespace bmojo::data
