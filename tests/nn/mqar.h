#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace bmojo::test {

// Multi-query associative recall: P key-value pairs first, then every key asked once; the value is
// due at the asked key. Keys come from the lower half of the vocabulary without replacement, values
// and fillers from the upper half. Question slot i, at position 2 P + 2 i, is drawn without
// replacement with probability ∝ (i + 1)^(a - 1), a = 0.01 (zoology's rule).
struct Mqar {
  int64_t length = 128, pairs = 16, vocabulary = 512;

  struct Batch {
    torch::Tensor ids, targets;  // [B, length]; target -1: not scored
  };

  Batch sample(int64_t batch, std::mt19937_64& random) const {
    auto ids = torch::empty({batch, length}, torch::kLong);
    auto targets = torch::full({batch, length}, -1, torch::kLong);
    for (int64_t b = 0; b < batch; ++b)
      fill(ids.data_ptr<int64_t>() + b * length, targets.data_ptr<int64_t>() + b * length, random);
    return {ids, targets};
  }

 private:
  void fill(int64_t* ids, int64_t* targets, std::mt19937_64& random) const {
    const int64_t half = vocabulary / 2;
    std::uniform_int_distribution<int64_t> value(half, vocabulary - 1);
    for (int64_t t = 0; t < length; ++t) ids[t] = value(random);
    std::vector<int64_t> keys(half);
    std::iota(keys.begin(), keys.end(), 0);
    std::ranges::shuffle(keys, random);
    // The P smallest of Exp(1) / weight are a weighted draw without replacement.
    std::exponential_distribution<double> exponential(1);
    std::vector<std::pair<double, int64_t>> slots;
    for (int64_t i = 0; i < (length - 2 * pairs) / 2; ++i)
      slots.emplace_back(exponential(random) / std::pow(i + 1.0, 0.01 - 1), i);
    std::ranges::sort(slots);
    for (int64_t p = 0; p < pairs; ++p) {
      ids[2 * p] = keys[p];
      const int64_t question = 2 * pairs + 2 * slots[p].second;
      ids[question] = keys[p];
      targets[question] = ids[2 * p + 1];
    }
  }
};

}  // namespace bmojo::test
