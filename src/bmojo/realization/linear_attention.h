// Linear attention: exp(q·k) is replaced by φ(q)·φ(k), so that past tokens can be summed up.
// Registers hold φ(k_t) v_tᵀ, as one vector. The forms below differ in A and in the read-out alone.
#pragma once

#include "bmojo/realization/attention.h"

namespace bmojo::realization {

// φ(x) = elu(x) + 1, which is positive
Vector feature(View x);

// Z_t = A Z_{t-1} + B φ(k_t) v_tᵀ;  y_t = φ(q_t)·(Σ_i c_i z_i)
struct LinearAttentionForm {
  Matrix a;
  Vector c;
};

LinearAttentionForm shift_register(size_t order);          // the last N tokens
LinearAttentionForm newest_register_sums(size_t order);    // all tokens: last row and c are 0 … 0 1
LinearAttentionForm oldest_register_sums(size_t order);    // all tokens: c is all ones
LinearAttentionForm last_row_with_all_ones(size_t order);  // over-counts: the sums are summed again

enum class Timing {
  kStepThenRead,        // y_t = φ(q_t)·(c Z_t)
  kReadThenAddCurrent,  // y_t = φ(q_t)·(c Z_{t-1} + φ(k_t) v_tᵀ), as the paper prints it
};

// The numerators, a row for each token. The denominators are those of values that are all 1.
Matrix linear_attention(const Tokens& tokens, const LinearAttentionForm& form, Timing timing);

// Divided by their denominators.
Matrix normalized_linear_attention(const Tokens& tokens, const LinearAttentionForm& form,
                                   Timing timing);

// How often token 0 … T-1 is counted in the output of token T-1.
Vector counts(const LinearAttentionForm& form, Timing timing, size_t num_tokens);

}  // namespace bmojo::realization
