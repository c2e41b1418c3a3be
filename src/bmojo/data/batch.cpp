#include "bmojo/data/batch.h"

#include <algorithm>
#include <set>

namespace bmojo::data {
namespace {

std::vector<int64_t> positions_wanted(std::span<const int64_t> sources) {
  std::set<int64_t> due, before;
  for (const auto source : sources)
    if (source != kNoSource) due.insert(source);
  for (const auto source : due)
    if (source > 0 && !due.contains(source - 1)) before.insert(source - 1);
  std::vector<int64_t> wanted(due.begin(), due.end());
  wanted.insert(wanted.end(), before.begin(), before.end());
  return wanted;
}

// Sequence `sequence` of [B, length]; empty where there are none.
std::span<int64_t> part(std::vector<int64_t>& all, int64_t sequence, int64_t length) {
  if (all.empty()) return {};
  return {all.data() + sequence * length, static_cast<size_t>(length)};
}

}  // namespace

Batch empty_batch(int64_t sequences, int64_t length, bool with_documents) {
  Batch batch{.num_sequences = sequences, .length = length};
  const auto size = static_cast<size_t>(sequences * length);
  batch.ids.resize(size);
  batch.targets.resize(size);
  if (with_documents) batch.documents.resize(size);
  return batch;
}

Reading sequence_of(Batch& batch, int64_t sequence) {
  return {part(batch.ids, sequence, batch.length), part(batch.targets, sequence, batch.length),
          part(batch.documents, sequence, batch.length)};
}

void count_scored(Batch& batch) {
  batch.num_scored = std::ssize(batch.targets) - std::ranges::count(batch.targets, kNotScored);
}

Batch columns(const Batch& batch, int64_t from, int64_t count) {
  if (count == batch.length) return batch;
  Batch out{.num_sequences = batch.num_sequences, .length = count, .wanted = batch.wanted};
  const auto cut = [&](const std::vector<int64_t>& all, std::vector<int64_t>& to) {
    for (int64_t sequence = 0; sequence < batch.num_sequences && !all.empty(); ++sequence) {
      const auto first = all.begin() + sequence * batch.length + from;
      to.insert(to.end(), first, first + count);
    }
  };
  cut(batch.ids, out.ids);
  cut(batch.targets, out.targets);
  cut(batch.documents, out.documents);
  cut(batch.sources, out.sources);
  count_scored(out);
  return out;
}

Batch draw(const Task& task, uint64_t seed, Split split, int64_t first, int64_t count) {
  auto batch = empty_batch(count, task.length, /*with_documents=*/false);
  batch.sources.resize(batch.ids.size());
  for (int64_t i = 0; i < count; ++i) {
    const auto out = sequence_of(batch, i);
    const auto sources = part(batch.sources, i, task.length);
    draw(task, seed, split, static_cast<uint64_t>(first + i), {out.ids, out.targets, sources});
    batch.wanted.push_back(positions_wanted(sources));
  }
  count_scored(batch);
  return batch;
}

}  // namespace bmojo::data
