// The little dense algebra that systems of a dozen states need, in double.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace bmojo::realization {

using Vector = std::vector<double>;
using View = std::span<const double>;

// Row by row.
struct Matrix {
  size_t rows = 0, columns = 0;
  Vector values;

  Matrix() = default;
  Matrix(size_t rows, size_t columns) : rows(rows), columns(columns), values(rows * columns) {}

  double& operator()(size_t i, size_t j) { return values[i * columns + j]; }
  double operator()(size_t i, size_t j) const { return values[i * columns + j]; }
  View row(size_t i) const { return View(values).subspan(i * columns, columns); }
};

Matrix identity(size_t order);
Matrix diagonal(View entries);
Matrix transpose(const Matrix& a);
Matrix operator*(const Matrix& a, const Matrix& b);
Vector operator*(const Matrix& a, View x);
double dot(View x, View y);

// Largest first.
Vector singular_values(const Matrix& a);

// The number of singular values above `tolerance` times the largest.
size_t rank(const Matrix& a, double tolerance);

// max |x - y| / max |y|
double relative_error(View x, View y);

}  // namespace bmojo::realization
