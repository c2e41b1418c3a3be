#include "bmojo/realization/linear_attention.h"

#include <algorithm>
#include <cmath>

namespace bmojo::realization {
namespace {

Vector last_of(size_t order) {
  Vector out(order);
  out.back() = 1;
  return out;
}

Vector outer(View x, View y) {
  Vector out;
  for (double a : x)
    for (double b : y) out.push_back(a * b);
  return out;
}

// What is read at step t; `registers` go on to it.
Vector memory(Registers& registers, const LinearAttentionForm& form, Timing timing, View input) {
  Vector before = registers.read(form.c);
  registers.step(form.a, input);
  if (timing == Timing::kStepThenRead) return registers.read(form.c);
  for (size_t j = 0; j < input.size(); ++j) before[j] += input[j];
  return before;
}

}  // namespace

Vector feature(View x) {
  Vector out(x.begin(), x.end());
  for (double& value : out) value = value > 0 ? value + 1 : std::exp(value);
  return out;
}

LinearAttentionForm shift_register(size_t order) {
  return {.a = companion(Vector(order)), .c = Vector(order, 1)};
}

LinearAttentionForm newest_register_sums(size_t order) {
  return {.a = companion(last_of(order)), .c = last_of(order)};
}

LinearAttentionForm oldest_register_sums(size_t order) {
  return {.a = oldest_accumulates(order), .c = Vector(order, 1)};
}

LinearAttentionForm last_row_with_all_ones(size_t order) {
  return {.a = companion(last_of(order)), .c = Vector(order, 1)};
}

Matrix linear_attention(const Tokens& tokens, const LinearAttentionForm& form, Timing timing) {
  const size_t width = tokens.values.columns;
  Registers registers(form.c.size(), tokens.keys.columns * width);
  Matrix out(tokens.size(), width);
  for (size_t t = 0; t < tokens.size(); ++t) {
    const Vector input = outer(feature(tokens.keys.row(t)), tokens.values.row(t));
    const Vector sum = memory(registers, form, timing, input);
    const Vector query = feature(tokens.queries.row(t));
    for (size_t i = 0; i < query.size(); ++i)
      for (size_t j = 0; j < width; ++j) out(t, j) += query[i] * sum[i * width + j];
  }
  return out;
}

Matrix normalized_linear_attention(const Tokens& tokens, const LinearAttentionForm& form,
                                   Timing timing) {
  Tokens ones = tokens;
  ones.values = Matrix(tokens.size(), 1);
  std::fill(ones.values.values.begin(), ones.values.values.end(), 1);
  Matrix out = linear_attention(tokens, form, timing);
  const Matrix denominators = linear_attention(ones, form, timing);
  for (size_t t = 0; t < out.rows; ++t)
    for (size_t j = 0; j < out.columns; ++j) out(t, j) /= denominators(t, 0);
  return out;
}

// Token i enters as the i-th unit vector.
Vector counts(const LinearAttentionForm& form, Timing timing, size_t num_tokens) {
  Registers registers(form.c.size(), num_tokens);
  Vector out;
  for (size_t t = 0; t < num_tokens; ++t) {
    Vector unit(num_tokens);
    unit[t] = 1;
    out = memory(registers, form, timing, unit);
  }
  return out;
}

}  // namespace bmojo::realization
