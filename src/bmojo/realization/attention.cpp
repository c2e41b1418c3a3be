#include "bmojo/realization/attention.h"

#include <algorithm>
#include <cmath>

namespace bmojo::realization {
namespace {

Vector key_and_value(const Tokens& tokens, size_t t) {
  const View key = tokens.keys.row(t), value = tokens.values.row(t);
  Vector out(key.begin(), key.end());
  out.insert(out.end(), value.begin(), value.end());
  return out;
}

// ρ(q, x): softmax over the registers from `first` on.
Vector softmax_read_out(View query, const Registers& registers, size_t first) {
  const auto key = [&](size_t i) { return registers[i].first(query.size()); };
  double largest = -INFINITY;
  for (size_t i = first; i < registers.order(); ++i)
    largest = std::max(largest, dot(query, key(i)));
  Vector out(registers[0].size() - query.size());
  double sum = 0;
  for (size_t i = first; i < registers.order(); ++i) {
    const double weight = std::exp(dot(query, key(i)) - largest);
    const View value = registers[i].subspan(query.size());
    for (size_t j = 0; j < out.size(); ++j) out[j] += weight * value[j];
    sum += weight;
  }
  for (double& x : out) x /= sum;
  return out;
}

Matrix attention(const Tokens& tokens, size_t num_registers, const LastRow& last_row,
                 bool reads_empty) {
  Registers registers(num_registers, tokens.keys.columns + tokens.values.columns);
  Matrix out(tokens.size(), tokens.values.columns);
  for (size_t t = 0; t < tokens.size(); ++t) {
    registers.step(companion(last_row(t)), key_and_value(tokens, t));
    const size_t first = reads_empty ? 0 : num_registers - registers.num_filled();
    const Vector y = softmax_read_out(tokens.queries.row(t), registers, first);
    std::copy(y.begin(), y.end(), &out(t, 0));
  }
  return out;
}

LastRow zero(size_t order) {
  return [order](size_t) { return Vector(order); };
}

}  // namespace

Matrix attention_by_registers(const Tokens& tokens, size_t num_registers, const LastRow& last_row) {
  return attention(tokens, num_registers, last_row, false);
}

Matrix windowed_attention_by_registers(const Tokens& tokens, size_t num_registers) {
  return attention(tokens, num_registers, zero(num_registers), false);
}

Matrix windowed_attention_with_empty_registers(const Tokens& tokens, size_t num_registers) {
  return attention(tokens, num_registers, zero(num_registers), true);
}

}  // namespace bmojo::realization
