#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bmojo/data/batch.h"
#include "bmojo/eval/language_model.h"

namespace bmojo::eval {

// Sums over scored tokens.
struct Score {
  double nats = 0;
  int64_t num_scored = 0, num_right = 0;  // right: the most likely token was the one due
  // Of a task, for each layer with eidetic memory: how often what was due stood in the set that its
  // queries saw.
  std::vector<int64_t> num_held = {};

  double loss() const { return nats / static_cast<double>(num_scored); }
  double accuracy() const {
    return static_cast<double>(num_right) / static_cast<double>(num_scored);
  }
  std::vector<double> held() const;  // as shares
  Score& operator+=(const Score& other);
};

// For people, in at most 10 columns: 4 decimals, or that it is no number.
std::string loss_text(double loss);

// The layers that num_held counts.
std::vector<int64_t> eidetic_layers(const model::Config& config);

// Tokens of a sequence that are read at once: memory does not grow with its length.
inline constexpr int64_t kEvalSegment = 2048;

// Reads sequences from their start, the memories carried over segments.
Score evaluate(const LanguageModel& model, const data::Batch& batch,
               int64_t segment = kEvalSegment);

// A whole text, its memories carried from end to end (a document's start empties them), and the
// loss by position in the document: entry i covers positions 2^(i-1) … 2^i - 1, entry 0 position 0.
struct TextScore {
  Score total;
  std::vector<Score> by_position;
};
TextScore evaluate_text(const LanguageModel& model, const data::TokenData& data,
                        const std::function<void(int64_t)>& progress,
                        int64_t segment = kEvalSegment);

// The sequences of a batch, or columns of them, as a model reads them: their memories, what each is
// told to keep, and where they stand.
class BatchReader {
 public:
  BatchReader(const LanguageModel& model, int64_t num_sequences);
  // `part` holds the next columns; returns hidden [B, L, D], valid until the next call.
  const float* read(const data::Batch& part, Observer* observer = nullptr);

 private:
  const LanguageModel& model_;
  std::vector<std::unique_ptr<Memory>> memories_;
  std::vector<float> hidden_;
};

}  // namespace bmojo::eval
