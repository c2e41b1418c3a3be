// Attention over a window as the registers of a nilpotent system with a softmax read-out.
#pragma once

#include <functional>

#include "bmojo/realization/registers.h"

namespace bmojo::realization {

// A row for each token. Queries and keys are equally wide.
struct Tokens {
  Matrix queries, keys, values;
  size_t size() const { return keys.rows; }
};

// The last row of A at step t, [N].
using LastRow = std::function<Vector(size_t t)>;

// b_t = (k_t, v_t);  x_t = A_t x_{t-1} + B b_t
// y_t = Σ_i exp(q_t·k_i) v_i / Σ_i exp(q_t·k_i), over the registers that have been filled
//
// The step comes before the read-out, so N registers are a window of N tokens, t among them.
// Returns y, a row for each token.
Matrix attention_by_registers(const Tokens& tokens, size_t num_registers, const LastRow& last_row);

// The same with a zero last row: attention over the last N tokens.
Matrix windowed_attention_by_registers(const Tokens& tokens, size_t num_registers);

// What the same read-out gives where empty registers take part: each has key 0 and value 0, hence
// the weight exp(0) = 1.
Matrix windowed_attention_with_empty_registers(const Tokens& tokens, size_t num_registers);

}  // namespace bmojo::realization
