// Selective copying: content tokens stand at random places among blanks. At the end stand as many
// markers, and at each the next content token is due, in order.
//
//     . . a . . . b . c . . . . . ?→a ?→b ?→c
//
// 0 is the blank and the last id the marker; content is drawn uniformly from the ids between them.

#include <algorithm>

#include "bmojo/base/error.h"
#include "bmojo/data/draws.h"
#include "bmojo/data/task.h"

namespace bmojo::data {

Task make_selective_copy(TaskKeys& keys) {
  const int64_t length = keys.number("length", 2, kMostTokens, 256);
  const int64_t count = keys.number("tokens", 1, kMostTokens, 16);
  const int64_t vocabulary = keys.number("vocab", 4, kMostTokens, 16);
  const auto text = keys.finish();
  base::require(
      length >= 2 * count,
      "task selective-copy: length must be at least 2 x tokens = {}, got {}; length={} or "
      "tokens={} would fit",
      2 * count, length, 2 * count, length / 2);
  const int64_t marker = vocabulary - 1, first_marker = length - count;
  return {.text = text,
          .legend = fmt::format("0 is the blank, {} the marker", marker),
          .length = length,
          .vocab_size = vocabulary,
          .fill = [=](base::Random& random, const TaskSequence& sequence) {
            const auto& [ids, targets, sources] = sequence;
            std::ranges::fill(ids.first(first_marker), 0);
            std::ranges::fill(ids.subspan(first_marker), marker);
            auto places = draw_distinct(random, count, 0, first_marker);
            std::ranges::sort(places);
            for (int64_t i = 0; i < count; ++i) {
              ids[places[i]] = targets[first_marker + i] = draw_from(random, 1, marker);
              sources[first_marker + i] = places[i];
            }
          }};
}

}  // namespace bmojo::data
