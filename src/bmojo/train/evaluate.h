#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bmojo/nn/model.h"
#include "bmojo/train/source.h"

namespace bmojo::train {

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

// Tokens of a row that are computed at once where no gradient is needed: memory stays bounded.
inline constexpr int64_t kEvalSegment = 2048;

// Rows from their start, the memories carried over segments.
Score score(const nn::Model& model, const Batch& batch);

// A whole text, its memories carried from end to end (a document's start empties them), and the
// loss by position in the document: entry i covers positions 2^(i-1) … 2^i - 1, entry 0 position 0.
struct TextScore {
  Score total;
  std::vector<Score> by_position;
};
TextScore score_text(const nn::Model& model, const TokenData& data,
                     const std::function<void(int64_t)>& progress);

}  // namespace bmojo::train
