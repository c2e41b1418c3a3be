// Induction heads: a special token stands once at a random place, and once more at the end. The
// token that followed it the first time is due there.
//
//     . . . . ! a . . . . . . . !→a
//
// 0 is the special token. All other tokens are drawn uniformly from the rest of the vocabulary,
// the answer among them.

#include "bmojo/data/draws.h"
#include "bmojo/data/task.h"

namespace bmojo::data {

Task make_induction(TaskKeys& keys) {
  const int64_t length = keys.number("length", 3, kMostTokens, 256);
  const int64_t vocabulary = keys.number("vocab", 3, kMostTokens, 16);
  constexpr int64_t kSpecial = 0;
  return {.text = keys.finish(),
          .legend = "0 is the special token",
          .length = length,
          .vocab_size = vocabulary,
          .fill = [=](base::Random& random, const TaskSequence& sequence) {
            const auto& [ids, targets, sources] = sequence;
            for (auto& id : ids) id = draw_from(random, kSpecial + 1, vocabulary);
            const int64_t place = draw_from(random, 0, length - 2);
            ids[place] = ids[length - 1] = kSpecial;
            targets[length - 1] = ids[place + 1];
            sources[length - 1] = place + 1;
          }};
}

}  // namespace bmojo::data
