#include "bmojo/realization/transfer_function.h"

#include <algorithm>

#include "bmojo/realization/registers.h"

namespace bmojo::realization {
namespace {

constexpr int kMostIterations = 2000;
constexpr long double kStill = 1e-17L;

}  // namespace

Polynomial from_roots(View roots) {
  Polynomial p{1};
  for (double root : roots) {  // p ← (z - r) p
    p.insert(p.begin(), 0);
    for (size_t k = 0; k + 1 < p.size(); ++k) p[k] -= root * p[k + 1];
  }
  return p;
}

double evaluate(const Polynomial& p, double z) {
  double sum = 0;
  for (size_t k = p.size(); k-- > 0;) sum = sum * z + p[k];
  return sum;
}

std::vector<std::complex<double>> roots(const Polynomial& p) {
  // Wider than double: the roots of what is stored, not of what rounding makes of its values.
  using Complex = std::complex<long double>;
  const size_t count = p.size() - 1;
  std::vector<Complex> z(count);
  // Powers of a number that is neither real nor of length 1: no symmetry to be caught in.
  for (size_t i = 0; i < count; ++i) z[i] = std::pow(Complex(0.4L, 0.9L), static_cast<int>(i));
  long double moved = 1;
  for (int turn = 0; moved > kStill && turn < kMostIterations; ++turn) {
    moved = 0;
    for (size_t i = 0; i < count; ++i) {
      Complex value = 0, others(p[count]);
      for (size_t k = p.size(); k-- > 0;) value = value * z[i] + Complex(p[k]);
      for (size_t j = 0; j < count; ++j)
        if (j != i) others *= z[i] - z[j];
      z[i] -= value / others;  // p(z_i) / Π_{j != i} (z_i - z_j)
      moved = std::max(moved, std::abs(value / others));
    }
  }
  std::vector<std::complex<double>> out;
  for (const Complex& each : z) out.emplace_back(each);
  return out;
}

Vector TransferFunction::last_row() const {
  Vector out(denominator.begin(), denominator.end() - 1);
  for (double& x : out) x = -x;
  return out;
}

TransferFunction transfer_function(const DiagonalSystem& system) {
  TransferFunction out{.numerator = Polynomial(system.order()),
                       .denominator = from_roots(system.a),
                       .feedthrough = dot(system.c, system.b) + system.d};
  for (size_t i = 0; i < system.order(); ++i) {
    Vector others = system.a;
    others.erase(others.begin() + i);
    const Polynomial rest = from_roots(others);
    const double residue = system.a[i] * system.b[i] * system.c[i];
    for (size_t k = 0; k < rest.size(); ++k) out.numerator[k] += residue * rest[k];
  }
  return out;
}

Vector outputs(const TransferFunction& system, View u) {
  Registers registers(system.numerator.size(), 1);
  const Matrix a = companion(system.last_row());
  Vector y(u.size());
  for (size_t t = 0; t < u.size(); ++t) {
    y[t] = registers.read(system.numerator)[0] + system.feedthrough * u[t];
    registers.step(a, u.subspan(t, 1));
  }
  return y;
}

}  // namespace bmojo::realization
