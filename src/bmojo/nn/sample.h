#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bmojo/nn/model.h"

namespace bmojo::nn {

struct SampleOptions {
  int64_t max_tokens = 32;
  double temperature = 1;  // 0: the most likely
  int64_t top_k = 0;       // 0: all
  double top_p = 1, min_p = 0;
  bool ignore_eos = false;
};

struct Sample {
  std::vector<int64_t> ids;
  std::vector<double> logprobs;
  std::string finish = "length";  // or "eos"
};

// The state after a prompt, read in parts of bounded size: memory does not grow with its length.
Output read_prompt(const Model& model, const std::vector<int64_t>& ids);

// Continues a prompt. Throws RunError where the logits are not finite.
Sample sample(const Model& model, const Output& prompt, const SampleOptions& options,
              uint64_t seed);

}  // namespace bmojo::nn
