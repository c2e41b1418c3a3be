#pragma once

#include <algorithm>

#include "bmojo/base/random.h"
#include "bmojo/data/batch.h"
#include "bmojo/model/config.h"

namespace bmojo::test {

// Rows of random tokens, of which about every third asks for one that came before, as in a task;
// and for eidetic_rule=oracle some positions in any order.
inline data::Batch random_batch(const model::Config& config, int64_t rows, int64_t length,
                                uint64_t seed) {
  base::Random random({seed, 80});
  auto batch = data::empty_batch(rows, length, /*with_documents=*/false);
  batch.sources.assign(batch.ids.size(), data::kNoSource);
  std::ranges::fill(batch.targets, data::kNotScored);
  for (auto& id : batch.ids)
    id = static_cast<int64_t>(random.below(static_cast<uint64_t>(config.vocab_size)));
  for (int64_t row = 0; row < rows; ++row) {
    auto& wanted = batch.wanted.emplace_back();
    for (int64_t t = 0; t < length; ++t) {
      if (random.below(4) == 0) wanted.push_back(t);
      if (t == 0 || random.below(3) != 0) continue;
      const auto source = static_cast<int64_t>(random.below(static_cast<uint64_t>(t)));
      const auto at = static_cast<size_t>(row * length + t);
      batch.sources[at] = source;
      batch.targets[at] = batch.ids[static_cast<size_t>(row * length + source)];
    }
    for (size_t i = wanted.size(); i > 1; --i) std::swap(wanted[i - 1], wanted[random.below(i)]);
  }
  data::count_scored(batch);
  return batch;
}

}  // namespace bmojo::test
