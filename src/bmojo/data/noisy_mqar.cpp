// Associative recall among noise: mqar with noise tokens between and around the pairs.
//
//     ~ k₁ v₁ ~ ~ k₂ v₂ … k_P v_P ~ | gap with ~ | . k₃ . . k₁ …
//
// Noise has the last noise_vocab ids for itself; keys and values share the ids below them as in
// mqar. Before the first question slot stand P pairs, then `gap` fillers, and among them as many
// noise tokens that they are a share `noise` of all: every order is equally likely that keeps each
// value behind its key. Question slot i is 2 i behind. Fillers are tokens of the values.

#include <cmath>

#include "bmojo/base/error.h"
#include "bmojo/data/draws.h"
#include "bmojo/data/recall.h"
#include "bmojo/data/task.h"

namespace bmojo::data {
namespace {

struct NoisyMqar {
  TaskKeys::Range pairs;
  int64_t length, vocabulary, gap;
  double noise;
  int64_t noise_vocabulary;

  int64_t first_noise() const { return vocabulary - noise_vocabulary; }
  int64_t half() const { return first_noise() / 2; }

  int64_t num_noise(int64_t num_pairs, int64_t gap_tokens) const {
    const auto others = static_cast<double>(2 * num_pairs + gap_tokens);
    return std::llround(others * noise / (1 - noise));
  }

  void fill(base::Random& random, const TaskSequence& sequence) const {
    const auto& [ids, targets, sources] = sequence;
    const auto value = [&] { return draw_from(random, half(), first_noise()); };
    const int64_t num_pairs = draw_from(random, pairs.low, pairs.high + 1);
    for (auto& id : ids) id = value();
    const auto keys = draw_distinct(random, num_pairs, 1, half());
    std::vector<int64_t> values;  // where each stands
    int64_t at = 0;
    for (const bool is_noise : draw_order(random, num_pairs)) {
      if (is_noise) {
        ids[at++] = draw_from(random, first_noise(), vocabulary);
      } else if (std::ssize(values) < num_pairs) {
        ids[at++] = keys[values.size()];
        values.push_back(at++);
      } else {
        ++at;
      }
    }
    const auto slots = draw_slots(random, num_pairs, (length - at) / 2);
    for (int64_t p = 0; p < num_pairs; ++p) {
      const int64_t question = at + 2 * slots[p];
      ids[question] = keys[p];
      targets[question] = ids[values[p]];
      sources[question] = values[p];
    }
  }

  // A pair, a filler of the gap and a noise token are one each: which of them are noise.
  std::vector<bool> draw_order(base::Random& random, int64_t num_pairs) const {
    const int64_t count = num_noise(num_pairs, gap);
    std::vector<bool> is_noise(num_pairs + gap + count);
    for (const auto i : draw_distinct(random, count, 0, std::ssize(is_noise))) is_noise[i] = true;
    return is_noise;
  }
};

void check(const NoisyMqar& task) {
  const int64_t most = task.pairs.high, needed = 2 * (most + 1) + task.noise_vocabulary;
  base::require(
      task.vocabulary >= needed,
      "task noisy-mqar: vocab must have noise_vocab = {} ids and a key for each pair, got {} "
      "for {} pairs; at least {} is needed",
      task.noise_vocabulary, task.vocabulary, most, needed);
  require_length({.task = "noisy-mqar",
                  .formula = "(2 x pairs + gap) / (1 - noise) + 2 x pairs",
                  .length = task.length,
                  .pairs = most,
                  .gap = task.gap,
                  .needed = [&](int64_t pairs, int64_t gap) {
                    return 4 * pairs + gap + task.num_noise(pairs, gap);
                  }});
}

}  // namespace

Task make_noisy_mqar(TaskKeys& keys) {
  NoisyMqar noisy{};
  noisy.pairs = keys.range("pairs", 1);
  noisy.length = keys.number("length", 4, kMostTokens);
  noisy.vocabulary = keys.number("vocab", 4, kMostTokens, 8192);
  noisy.gap = keys.number("gap", 0, kMostTokens, 0);
  noisy.noise = keys.share("noise", 0.9, 0.2);
  noisy.noise_vocabulary = keys.number("noise_vocab", 1, kMostTokens, 16);
  const auto text = keys.finish();
  check(noisy);
  return {.text = text,
          .legend = fmt::format("keys 1 … {}, values {} … {}, noise {} … {}", noisy.half() - 1,
                                noisy.half(), noisy.first_noise() - 1, noisy.first_noise(),
                                noisy.vocabulary - 1),
          .length = noisy.length,
          .vocab_size = noisy.vocabulary,
          .fill = [noisy](base::Random& random, const TaskSequence& sequence) {
            noisy.fill(random, sequence);
          }};
}

}  // namespace bmojo::data
