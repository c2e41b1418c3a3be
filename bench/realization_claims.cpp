#include "bench/realization_claims.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <utility>

#include "bmojo/realization/bilinear.h"
#include "bmojo/realization/innovations.h"
#include "bmojo/realization/linear_attention.h"
#include "bmojo/realization/load_state.h"
#include "bmojo/realization/minimality.h"
#include "bmojo/realization/oscillator.h"
#include "bmojo/realization/random.h"
#include "bmojo/realization/strictly_causal.h"
#include "bmojo/realization/whiteness.h"

namespace bmojo::bench {
namespace {

using namespace realization;  // this file is about nothing else

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kWindow = 8, kNumTokens = 64, kNumSteps = 300;

// --- what a claim may be
// --------------------------------------------------------------------------

std::string shown(double bound) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", bound);
  return text;
}

Claim at_most(int part, std::string what, double measured, double bound) {
  return {part, std::move(what), measured, "<= " + shown(bound), 0, bound};
}

Claim at_least(int part, std::string what, double measured, double bound) {
  return {part, std::move(what), measured, ">= " + shown(bound), bound, kInfinity};
}

Claim exactly(int part, std::string what, double measured, double value) {
  return {part, std::move(what), measured, shown(value), value, value};
}

Claim between(int part, std::string what, double measured, double lowest, double highest) {
  return {part, std::move(what), measured, shown(lowest) + " … " + shown(highest), lowest, highest};
}

// --- 1: attention
// ---------------------------------------------------------------------------------

Tokens random_tokens(uint64_t seed) {
  Random random(seed);
  return {.queries = random.gaussians(kNumTokens, 8),
          .keys = random.gaussians(kNumTokens, 8),
          .values = random.gaussians(kNumTokens, 8)};
}

// Σ_i w(q_t, k_i) v_i over the last `window` tokens, divided by the Σ of the weights if asked.
template <class Weight>
Matrix written_out(const Tokens& tokens, size_t window, bool normalized, const Weight& weight) {
  Matrix out(tokens.size(), tokens.values.columns);
  for (size_t t = 0; t < tokens.size(); ++t) {
    double sum = 0;
    for (size_t i = t + 1 > window ? t + 1 - window : 0; i <= t; ++i) {
      const double w = weight(tokens.queries.row(t), tokens.keys.row(i));
      for (size_t j = 0; j < out.columns; ++j) out(t, j) += w * tokens.values(i, j);
      sum += w;
    }
    for (size_t j = 0; normalized && j < out.columns; ++j) out(t, j) /= sum;
  }
  return out;
}

double softmax_weight(View q, View k) { return std::exp(dot(q, k)); }
double linear_weight(View q, View k) { return dot(feature(q), feature(k)); }

// The largest change of the output `age` steps and more behind a changed token, before `until`.
double effect_of_a_change(size_t age, size_t until) {
  constexpr size_t kChanged = 5;
  const Tokens tokens = random_tokens(1);
  Tokens changed = tokens;
  for (size_t j = 0; j < 8; ++j) changed.values(kChanged, j) += 1;
  const Matrix before = windowed_attention_by_registers(tokens, kWindow);
  const Matrix after = windowed_attention_by_registers(changed, kWindow);
  double out = 0;
  for (size_t t = kChanged + age; t < std::min(kNumTokens, kChanged + until); ++t)
    for (size_t j = 0; j < 8; ++j) out = std::max(out, std::abs(before(t, j) - after(t, j)));
  return out;
}

void attention_claims(std::vector<Claim>& out) {
  const Tokens tokens = random_tokens(1);
  const Matrix wanted = written_out(tokens, kWindow, true, softmax_weight);
  const Matrix registers = windowed_attention_by_registers(tokens, kWindow);
  const Matrix empty = windowed_attention_with_empty_registers(tokens, kWindow);
  out.push_back(at_most(1, "a window of attention is N registers: error",
                        relative_error(registers.values, wanted.values), 1e-14));
  out.push_back(at_least(1, "  effect of a token N - 1 steps old",
                         effect_of_a_change(kWindow - 1, kWindow), 1e-6));
  out.push_back(exactly(1, "  effect of a token N steps old or older",
                        effect_of_a_change(kWindow, kNumTokens), 0));
  out.push_back(at_least(1, "  error if empty registers took part",
                         relative_error(empty.values, wanted.values), 1e-3));
}

// --- 2: diagonal systems
// --------------------------------------------------------------------------

DiagonalSystem random_system(Vector poles, uint64_t seed) {
  Random random(seed);
  const size_t order = poles.size();
  return {.a = std::move(poles),
          .b = random.gaussians(order),
          .c = random.gaussians(order),
          .d = random.gaussian()};
}

double companion_error(const DiagonalSystem& system, const DiagonalSystem& wanted, View u) {
  return relative_error(outputs(transfer_function(system), u), outputs(wanted, u));
}

// exp(Δ A), B and C that follow the input, as in Mamba.
VaryingSystem mamba_like(size_t order, View u) {
  VaryingSystem out;
  for (double input : u) {
    DiagonalSystem now{.a = Vector(order), .b = Vector(order), .c = Vector(order), .d = 0.5};
    for (size_t i = 0; i < order; ++i) {
      const double rate = static_cast<double>(i + 1) / static_cast<double>(order);
      now.a[i] = std::exp(-rate * std::log1p(std::exp(input)));
      now.b[i] = std::cos(rate * input);
      now.c[i] = 1 + rate * std::sin(input);
    }
    out.push_back(now);
  }
  return out;
}

void diagonal_claims(std::vector<Claim>& out) {
  const Vector u = Random(2).gaussians(kNumSteps);
  double apart = 0;
  for (size_t order = 1; order <= 8; ++order) {
    const auto system = random_system(evenly(order, -0.9, 0.9), order);
    apart = std::max(apart, companion_error(system, system, u));
  }
  auto cancelled = random_system(evenly(6, -0.8, 0.9), 3);
  cancelled.b[1] = cancelled.c[4] = 0;
  const auto repeated = random_system({0.7, 0.7, -0.4, 0.7, 0.2}, 4);
  const auto few = without_cancellations(cancelled), single = without_cancellations(repeated);
  const auto varying = mamba_like(16, u), two = mamba_like(2, u);
  const Vector wanted = outputs(varying, u), of_two = outputs(two, u);
  out.push_back(at_most(2, "diagonal as one companion form, N = 1 … 8: error", apart, 1e-12));
  out.push_back(at_most(2, "  with two poles cancelled: error",
                        companion_error(cancelled, cancelled, u), 1e-12));
  out.push_back(at_most(2, "  the same of order " + std::to_string(few.order()) + ": error",
                        companion_error(few, cancelled, u), 1e-12));
  out.push_back(at_most(2, "  with a pole three times, as order 5: error",
                        companion_error(repeated, repeated, u), 1e-12));
  out.push_back(at_most(2, "  the same of order " + std::to_string(single.order()) + ": error",
                        companion_error(single, repeated, u), 1e-12));
  out.push_back(
      at_least(2, "  N = 16, poles 0.90 … 0.99: error", error_of_poles_near_one(16), 1e-6));
  out.push_back(exactly(2, "input-varying as N systems of order 1: error",
                        relative_error(direct_sum_outputs(varying, u), wanted), 0));
  out.push_back(at_least(2, "  as one of order 2, poles of the step: error",
                         relative_error(instantaneous_companion_outputs(two, u), of_two), 0.05));
}

// --- 3: linear attention
// --------------------------------------------------------------------------

void linear_attention_claims(std::vector<Claim>& out) {
  const Tokens tokens = random_tokens(5);
  const auto error = [&](const LinearAttentionForm& form, size_t window) {
    const Matrix wanted = written_out(tokens, window, false, linear_weight);
    const Matrix got = linear_attention(tokens, form, Timing::kStepThenRead);
    return relative_error(got.values, wanted.values);
  };
  const auto printed = last_row_with_all_ones(kWindow);
  const Matrix normalized =
      normalized_linear_attention(tokens, printed, Timing::kReadThenAddCurrent);
  const Matrix wanted = written_out(tokens, kNumTokens, true, linear_weight);
  out.push_back(at_most(3, "linear attention of a window: error",
                        error(shift_register(kWindow), kWindow), 1e-13));
  out.push_back(at_most(3, "  of all tokens, newest register sums: error",
                        error(newest_register_sums(kWindow), kNumTokens), 1e-13));
  out.push_back(at_most(3, "  of all tokens, oldest register sums: error",
                        error(oldest_register_sums(kWindow), kNumTokens), 1e-13));
  out.push_back(exactly(3, "  read out as printed, N = 8: token 0 counts",
                        counts(printed, Timing::kReadThenAddCurrent, kNumTokens)[0], 8));
  out.push_back(at_least(3, "  the same, divided by its denominator: error",
                         relative_error(normalized.values, wanted.values), 0.05));
}

// --- 4: loading a state
// ---------------------------------------------------------------------------

void load_state_claims(std::vector<Claim>& out) {
  constexpr size_t kChannels = 8, kStates = 16;
  Random random(6);
  const Matrix h0 = random.gaussians(kChannels, kStates), zeros(kChannels, kStates);
  Matrix A = zeros;  // Mamba's initial values
  for (size_t e = 0; e < kChannels; ++e)
    for (size_t n = 0; n < kStates; ++n) A(e, n) = -static_cast<double>(n + 1);
  std::vector<ScanStep> tokens;
  for (int t = 0; t < 20; ++t) {
    const Vector B = random.gaussians(kStates);
    tokens.push_back(mamba_step(A, 0.05, B, random.gaussians(kChannels)));
  }
  auto steps = loading_steps(h0);
  steps.insert(steps.end(), tokens.begin(), tokens.end());
  const auto error = [&](const std::vector<ScanStep>& loading) {
    return relative_error(scan(zeros, loading).values, h0.values);
  };
  out.push_back(exactly(4, "h_0 by 16 extra steps, then 20 tokens: error",
                        relative_error(scan(zeros, steps).values, scan(h0, tokens).values), 0));
  out.push_back(at_least(4, "  by Mamba's own steps, dt = 0.1: error",
                         error(mamba_loading_steps(h0, A, 0.1)), 0.1));
  out.push_back(at_least(4, "  by Mamba's own steps, dt = 0.001: error",
                         error(mamba_loading_steps(h0, A, 0.001)), 0.001));
  out.push_back(at_most(4, "  dt = 0.1, inputs enlarged to make up: error",
                        error(compensated_loading_steps(h0, A, 0.1)), 1e-13));
}

// --- 5: the bilinear form
// -------------------------------------------------------------------------

void bilinear_claims(std::vector<Claim>& out) {
  Vector step, one_step, at_horizon;
  for (const auto& error : bilinear_errors(2, 8, 14)) {
    step.push_back(error.step);
    one_step.push_back(error.one_step);
    at_horizon.push_back(error.at_horizon);
  }
  out.push_back(between(5, "bilinear form: slope of one step's error", log_slope(step, one_step),
                        1.98, 2.02));
  out.push_back(between(5, "  slope of the error at a fixed horizon", log_slope(step, at_horizon),
                        0.98, 1.02));
}

// --- 6: minimality, the oscillator, strict causality
// ------------------------------------------------

size_t reachable_whatever_the_last_rows(size_t order) {
  Random random(7);
  size_t least = order;
  for (int draw = 0; draw < 100; ++draw) {
    std::vector<Matrix> A;
    for (size_t t = 0; t < order; ++t) A.push_back(companion(random.gaussians(order)));
    Vector newest(order);
    newest.back() = 1;
    least = std::min(least, rank(reachability(A, std::vector<Vector>(order, newest)), 1e-10));
  }
  return least;
}

size_t observable_rank(const DiagonalSystem& system) {
  const auto whole = transfer_function(system);
  const Vector unused(system.order());
  return ranks(companion(whole.last_row()), unused, whole.numerator, 1e-10).observable;
}

void oscillator_claims(std::vector<Claim>& out) {
  constexpr double kTheta = 0.3;
  constexpr size_t kLong = 10000;
  Vector impulse(kLong), wanted(kLong);
  impulse[0] = 1;
  for (size_t t = 0; t < kLong; ++t)
    wanted[t] = std::sin(kTheta * static_cast<double>(t)) / std::sin(kTheta);
  const Vector y = outputs(oscillator(kTheta), impulse);
  const View behind = View(y).subspan(1, 64);
  out.push_back(at_most(6, "oscillator over 10,000 steps: error", relative_error(y, wanted), 1e-9));
  out.push_back({6, "  discriminant of its recurrence",
                 recurrence_of(behind.first(4)).discriminant(), "< 0", -kInfinity,
                 -std::numeric_limits<double>::min()});
  out.push_back(at_least(6, "  best real diagonal fit of order 2: error",
                         best_real_diagonal_fit(behind), 0.5));
}

void minimality_claims(std::vector<Claim>& out) {
  DiagonalSystem system{.a = {0.9, -0.7, 0.5, 0.2, -0.3, 0.6},
                        .b = {1, 1, 1, 1, 1, 1},
                        .c = {1, 2, -1, 3, 1, -2},
                        .d = 0};
  out.push_back(exactly(6, "companion, N = 6, any last rows: reachable",
                        static_cast<double>(reachable_whatever_the_last_rows(6)), 6));
  out.push_back(exactly(6, "  observable", static_cast<double>(observable_rank(system)), 6));
  system.c[2] = 0;
  out.push_back(exactly(6, "  observable, one pole cancelled",
                        static_cast<double>(observable_rank(system)), 5));
  oscillator_claims(out);
  const Vector u = Random(8).gaussians(kNumSteps);
  const auto still = random_system({0.9, -0.6, 0.3}, 9);
  const auto varying = mamba_like(3, u);
  const Vector y = outputs(still, u);
  out.push_back(at_most(6, "strictly causal, time-invariant: error",
                        relative_error(strictly_causal_outputs(still, u), y), 1e-14));
  out.push_back(at_most(6, "  input-varying: error",
                        relative_error(strictly_causal_outputs(varying, u), outputs(varying, u)),
                        1e-14));
  out.push_back(at_least(6, "  as printed, u_{t-1}: error",
                         relative_error(delayed_outputs(still, u), y), 0.1));
}

// --- 7: innovations
// -------------------------------------------------------------------------------

void innovation_claims(std::vector<Claim>& out) {
  constexpr size_t kLength = 400, kLags = 20, kSpan = 4;
  constexpr uint64_t kSeeds = 200;
  const auto system = damped_oscillator();
  int optimal = 0, order_one = 0, mean = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Vector y = sample(system, kLength, seed);
    optimal += ljung_box(optimal_residuals(system, y), kLags).p_value < 0.05;
    order_one += ljung_box(order_one_residuals(y), kLags).p_value < 0.05;
    mean += ljung_box(running_mean_residuals(y, kSpan), kLags).p_value < 0.05;
  }
  const Vector y = sample(system, kLength, 1);
  const auto p_value = [](View residuals) { return ljung_box(residuals, kLags).p_value; };
  out.push_back(at_least(7, "optimal predictor, seed 1: Ljung-Box p",
                         p_value(optimal_residuals(system, y)), 0.05));
  out.push_back(between(7, "  not white at 5 %, of 200 seeds", optimal, 1, 19));
  out.push_back(at_most(7, "predictor of order 1, seed 1: Ljung-Box p",
                        p_value(order_one_residuals(y)), 1e-10));
  out.push_back(exactly(7, "  not white at 5 %, of 200 seeds", order_one, 200));
  out.push_back(at_most(7, "mean of the last 4, seed 1: Ljung-Box p",
                        p_value(running_mean_residuals(y, kSpan)), 1e-10));
  out.push_back(exactly(7, "  not white at 5 %, of 200 seeds", mean, 200));
}

}  // namespace

Vector evenly(size_t count, double first, double last) {
  Vector out(count, first);
  for (size_t i = 1; i < count; ++i)
    out[i] = first + (last - first) * static_cast<double>(i) / static_cast<double>(count - 1);
  return out;
}

double error_of_poles_near_one(size_t order) {
  Vector impulse(kNumSteps);
  impulse[0] = 1;
  auto system = random_system(evenly(order, 0.9, 0.99), 1);
  std::fill(system.c.begin(), system.c.end(), 1);
  std::fill(system.b.begin(), system.b.end(), 1);
  return companion_error(system, system, impulse);
}

std::vector<Claim> measure_claims() {
  std::vector<Claim> out;
  attention_claims(out);
  diagonal_claims(out);
  linear_attention_claims(out);
  load_state_claims(out);
  bilinear_claims(out);
  minimality_claims(out);
  innovation_claims(out);
  return out;
}

}  // namespace bmojo::bench
