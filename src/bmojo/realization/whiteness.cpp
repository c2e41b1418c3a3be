#include "bmojo/realization/whiteness.h"

#include <cmath>
#include <limits>
#include <numeric>

namespace bmojo::realization {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr int kMostTerms = 10000;

// P(a, x) = xᵃ e⁻ˣ Σ_n xⁿ / (a (a + 1) … (a + n)) / Γ(a), quick for x < a + 1
double lower_by_series(double a, double x, double scale) {
  double term = 1 / a, sum = term;
  for (int n = 1; n < kMostTerms && term > kEpsilon * sum; ++n) {
    term *= x / (a + n);
    sum += term;
  }
  return scale * sum;
}

// Q(a, x) = xᵃ e⁻ˣ / Γ(a) · 1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - …)), by Lentz's method
double upper_by_fraction(double a, double x, double scale) {
  constexpr double kTiny = std::numeric_limits<double>::min() / kEpsilon;
  double b = x + 1 - a, c = 1 / kTiny, d = 1 / b, fraction = d, change = 0;
  for (int n = 1; n < kMostTerms && std::abs(change - 1) > kEpsilon; ++n) {
    const double numerator = -n * (n - a);
    b += 2;
    d = numerator * d + b;
    d = 1 / (std::abs(d) < kTiny ? kTiny : d);
    c = b + numerator / c;
    if (std::abs(c) < kTiny) c = kTiny;
    change = c * d;
    fraction *= change;
  }
  return scale * fraction;
}

}  // namespace

double upper_gamma(double a, double x) {
  if (x <= 0) return 1;
  const double scale = std::exp(a * std::log(x) - x - std::lgamma(a));
  return x < a + 1 ? 1 - lower_by_series(a, x, scale) : upper_by_fraction(a, x, scale);
}

double chi_square_survival(double x, double degrees) { return upper_gamma(degrees / 2, x / 2); }

Vector autocorrelations(View series, size_t num_lags) {
  const double n = static_cast<double>(series.size());
  const double mean = std::accumulate(series.begin(), series.end(), 0.0) / n;
  Vector centred(series.begin(), series.end()), out;
  for (double& x : centred) x -= mean;
  const double energy = dot(centred, centred);
  for (size_t k = 1; k <= num_lags; ++k)
    out.push_back(dot(View(centred).subspan(k), View(centred).first(centred.size() - k)) / energy);
  return out;
}

LjungBox ljung_box(View residuals, size_t num_lags) {
  const double n = static_cast<double>(residuals.size());
  const Vector rho = autocorrelations(residuals, num_lags);
  double sum = 0;
  for (size_t k = 1; k <= num_lags; ++k)
    sum += rho[k - 1] * rho[k - 1] / (n - static_cast<double>(k));
  const double statistic = n * (n + 2) * sum;
  return {statistic, chi_square_survival(statistic, static_cast<double>(num_lags))};
}

}  // namespace bmojo::realization
