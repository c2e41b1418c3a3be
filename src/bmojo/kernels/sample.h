#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bmojo::kernels {

// How a token is drawn from a row of logits x [V], in this order:
//   repetition penalty r   x_i / r where x_i > 0, else x_i · r, for every recent id, once each
//   temperature T          p_i ∝ exp(x_i / T); 0 (in fact below 1e-6): the most likely, no draw
//   top-k                  the k largest, of equals the lower ids
//   top-p                  of these the fewest that hold the share p of their mass, likeliest first
//   min-p                  of these the ones at least min_p times as likely as the likeliest
// The likeliest always stays. What is left is drawn in proportion to p_i, in order of ids.
struct Sampling {
  double temperature = 1;
  int64_t top_k = 0;  // 0: all
  double top_p = 1, min_p = 0, repetition_penalty = 1;
};

// What users may ask for; top_p and min_p lie in [0, 1].
inline constexpr double kMaxTemperature = 1e6, kLeastPenalty = 0.01, kMaxPenalty = 100;
inline constexpr int64_t kMaxTopK = int64_t{1} << 40;

// Kept from call to call, so that drawing does not allocate.
struct SamplingScratch {
  std::vector<float> logits;
  std::vector<double> weight;
  std::vector<int64_t> kept, order;
};

// The number'th draw of a seed: the same on every machine and after every resume. -1 where the
// logits hold NaN or +∞, or nothing but -∞.
int64_t sample(std::span<const float> logits, std::span<const int64_t> recent, const Sampling& how,
               uint64_t seed, uint64_t number, SamplingScratch& scratch);

}  // namespace bmojo::kernels
