#include "bmojo/eval/due.h"

#include <algorithm>

#include "bmojo/kernels/log_softmax.h"

namespace bmojo::eval {

DueScores score_due(const LanguageModel& model, std::span<const Due> due) {
  const int64_t D = model.config().hidden_size, V = model.config().vocab_size;
  const auto block = static_cast<size_t>(std::max<int64_t>(kLogitsAtOnce / V, 1));
  DueScores out{std::vector<float>(due.size()), std::vector<int64_t>(due.size())};
  std::vector<float> rows, logits;
  std::vector<int64_t> ids;
  for (size_t from = 0; from < due.size(); from += block) {
    const auto some = due.subspan(from, std::min(block, due.size() - from));
    rows.clear();
    ids.clear();
    for (const auto& [hidden, id] : some) {
      rows.insert(rows.end(), hidden, hidden + D);
      ids.push_back(id);
    }
    logits.resize(some.size() * static_cast<size_t>(V));
    model.logits(rows.data(), std::ssize(some), logits.data());
    kernels::score_rows(
        {logits.data(), V}, std::ssize(some), V, ids.data(),
        {.target = out.own.data() + from, .best = out.best.data() + from},
        [&](int64_t tasks, const kernels::Task& task) { model.parallel(tasks, task); });
  }
  return out;
}

}  // namespace bmojo::eval
