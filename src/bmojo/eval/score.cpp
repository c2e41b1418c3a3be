#include "bmojo/eval/score.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bmojo/base/error.h"
#include "bmojo/eval/due.h"
#include "bmojo/kernels/log_softmax.h"

namespace bmojo::eval {
namespace {

// One text while it is read.
struct Reader {
  const Ids& ids;
  std::unique_ptr<Memory> memory;
  TokenScores& scores;
  int64_t number = 0, done = 0;

  int64_t next(int64_t chunk) const { return std::min(chunk, std::ssize(ids) - done); }
};

// `logits` [count, V] stand after tokens [from, from + count).
void add_scores(const LanguageModel& model, const float* logits, int64_t from, int64_t count,
                const Ids& ids, TokenScores& out) {
  const int64_t V = model.config().vocab_size;
  if (!std::all_of(logits, logits + count * V, [](float x) { return std::isfinite(x); }))
    throw base::RunError(
        fmt::format("score: logits must be finite, got NaN or infinity near token {}", from));
  // Nothing is due behind the last token.
  const int64_t n = std::min<int64_t>(count, std::ssize(ids) - 1 - from);
  if (n <= 0) return;
  const auto old = out.own.size(), size = old + static_cast<size_t>(n);
  out.own.resize(size);
  out.top.resize(size);
  out.argmax.resize(size);
  kernels::score_rows(
      {logits, V}, n, V, ids.data() + from + 1,
      {.target = out.own.data() + old,
       .best = out.argmax.data() + old,
       .best_log_p = out.top.data() + old},
      [&](int64_t tasks, const kernels::Task& task) { model.parallel(tasks, task); });
}

// The next tokens of a text, whose hidden states are at `hidden`.
void score_chunk(const LanguageModel& model, Reader& reader, const float* hidden, int64_t count,
                 const ScoreOptions& options, std::vector<float>& logits) {
  const int64_t D = model.config().hidden_size, V = model.config().vocab_size;
  const int64_t block = std::max<int64_t>(1, kLogitsAtOnce / V);
  for (int64_t from = 0; from < count; from += block) {
    const int64_t n = std::min(block, count - from), at = reader.done + from;
    logits.resize(static_cast<size_t>(n * V));
    model.logits(hidden + from * D, n, logits.data());
    if (options.on_logits) options.on_logits(reader.number, at, n, logits.data());
    add_scores(model, logits.data(), at, n, reader.ids, reader.scores);
  }
  reader.done += count;
}

}  // namespace

std::vector<TokenScores> score(const LanguageModel& model, std::span<const Ids> texts,
                               const ScoreOptions& options) {
  const int64_t D = model.config().hidden_size;
  std::vector<TokenScores> out(texts.size());
  std::vector<Reader> readers;
  for (size_t i = 0; i < texts.size(); ++i)
    readers.push_back({texts[i], model.begin(), out[i], static_cast<int64_t>(i)});
  std::vector<Reading> readings;
  std::vector<float> hidden, logits;
  while (true) {
    readings.clear();
    int64_t total = 0;
    for (const auto& reader : readers) {
      const auto count = reader.next(options.chunk);
      readings.push_back({reader.memory.get(), std::span(reader.ids)
                                                   .subspan(static_cast<size_t>(reader.done),
                                                            static_cast<size_t>(count))});
      total += count;
    }
    if (total == 0) return out;
    hidden.resize(static_cast<size_t>(total * D));
    model.forward(readings, hidden.data());
    const float* at = hidden.data();
    for (auto& reader : readers) {
      const auto count = reader.next(options.chunk);
      score_chunk(model, reader, at, count, options, logits);
      at += count * D;
    }
    if (options.between_chunks) options.between_chunks();
  }
}

}  // namespace bmojo::eval
