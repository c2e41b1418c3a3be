#include "bmojo/realization/matrix.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace bmojo::realization {
namespace {

constexpr int kMostSweeps = 60;  // a dozen columns need fewer than ten
constexpr double kOrthogonal = 1e-15;

// Turns the columns i and j of `a` until they are orthogonal; false if they were.
bool orthogonalize(Matrix& a, size_t i, size_t j) {
  double ii = 0, jj = 0, ij = 0;
  for (size_t k = 0; k < a.rows; ++k) {
    ii += a(k, i) * a(k, i);
    jj += a(k, j) * a(k, j);
    ij += a(k, i) * a(k, j);
  }
  if (std::abs(ij) <= kOrthogonal * std::sqrt(ii * jj)) return false;
  const double zeta = (jj - ii) / (2 * ij);
  const double tangent = std::copysign(1 / (std::abs(zeta) + std::hypot(1, zeta)), zeta);
  const double cosine = 1 / std::hypot(1, tangent), sine = cosine * tangent;
  for (size_t k = 0; k < a.rows; ++k) {
    const double x = a(k, i), y = a(k, j);
    a(k, i) = cosine * x - sine * y;
    a(k, j) = sine * x + cosine * y;
  }
  return true;
}

}  // namespace

Matrix identity(size_t order) { return diagonal(Vector(order, 1)); }

Matrix diagonal(View entries) {
  Matrix out(entries.size(), entries.size());
  for (size_t i = 0; i < entries.size(); ++i) out(i, i) = entries[i];
  return out;
}

Matrix transpose(const Matrix& a) {
  Matrix out(a.columns, a.rows);
  for (size_t i = 0; i < a.rows; ++i)
    for (size_t j = 0; j < a.columns; ++j) out(j, i) = a(i, j);
  return out;
}

Matrix operator*(const Matrix& a, const Matrix& b) {
  Matrix out(a.rows, b.columns);
  for (size_t i = 0; i < a.rows; ++i)
    for (size_t k = 0; k < a.columns; ++k)
      for (size_t j = 0; j < b.columns; ++j) out(i, j) += a(i, k) * b(k, j);
  return out;
}

Vector operator*(const Matrix& a, View x) {
  Vector out(a.rows);
  for (size_t i = 0; i < a.rows; ++i) out[i] = dot(a.row(i), x);
  return out;
}

double dot(View x, View y) { return std::inner_product(x.begin(), x.end(), y.begin(), 0.0); }

// One-sided Jacobi: orthogonal columns have the singular values as their lengths. It finds small
// ones to full relative accuracy, which is what a rank is read off.
Vector singular_values(const Matrix& given) {
  Matrix a = given.rows < given.columns ? transpose(given) : given;
  bool turned = true;
  for (int sweep = 0; turned && sweep < kMostSweeps; ++sweep) {
    turned = false;
    for (size_t i = 0; i < a.columns; ++i)
      for (size_t j = i + 1; j < a.columns; ++j) turned = orthogonalize(a, i, j) || turned;
  }
  const Matrix columns = transpose(a);
  Vector out(a.columns);
  for (size_t i = 0; i < a.columns; ++i) out[i] = std::sqrt(dot(columns.row(i), columns.row(i)));
  std::sort(out.begin(), out.end(), std::greater<>());
  return out;
}

size_t rank(const Matrix& a, double tolerance) {
  const Vector values = singular_values(a);
  return std::count_if(values.begin(), values.end(),
                       [&](double value) { return value > tolerance * values[0]; });
}

double relative_error(View x, View y) {
  double error = 0, largest = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    // A NaN counts as the worst of errors.
    error = std::isnan(x[i]) ? INFINITY : std::max(error, std::abs(x[i] - y[i]));
    largest = std::max(largest, std::abs(y[i]));
  }
  return error / largest;
}

}  // namespace bmojo::realization
