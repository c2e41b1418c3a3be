// `bmojo-realization`: the table of docs/realization.md, a line for each claim; exits 1 when one
// does not hold. `--json` adds the series that tools/realization.py draws.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <complex>
#include <nlohmann/json.hpp>

#include "bench/realization_claims.h"
#include "bmojo/realization/bilinear.h"
#include "bmojo/realization/linear_attention.h"
#include "bmojo/realization/oscillator.h"

namespace bmojo::bench {
namespace {

using Json = nlohmann::ordered_json;
using realization::Vector;

constexpr size_t kOrder = 16, kNumSteps = 64;

// Whole numbers as such, others with as many digits as mean something.
std::string shown(double x) {
  if (x == std::round(x) && std::abs(x) < 1e6) return fmt::format("{:.0f}", x);
  const bool is_plain = std::abs(x) >= 0.01 && std::abs(x) < 1000;
  return is_plain ? fmt::format("{:.3f}", x) : fmt::format("{:.1e}", x);
}

void print(const std::vector<Claim>& claims) {
  fmt::print("{:<6}{:<48}{:>10}  {}\n", "part", "claim", "measured", "must be");
  int last = 0;
  for (const auto& claim : claims) {
    const std::string part = claim.part == last ? "" : std::to_string(claim.part);
    fmt::print("{:<6}{:<48}{:>10}  {}{}\n", part, claim.what, shown(claim.measured), claim.must_be,
               claim.holds() ? "" : " *");
    last = claim.part;
  }
  const auto num_missed = std::ranges::count(claims, false, &Claim::holds);
  if (num_missed > 0) fmt::print("claims that do not hold, marked *: {}\n", num_missed);
}

// What a read-out of registers says of a one that entered at step 0.
Vector impulse_response(const realization::LinearAttentionForm& form) {
  realization::Registers registers(form.c.size(), 1);
  Vector out;
  for (size_t t = 0; t < kNumSteps; ++t) {
    registers.step(form.a, Vector{t == 0 ? 1.0 : 0.0});
    out.push_back(registers.read(form.c)[0]);
  }
  return out;
}

Json impulse_responses() {
  Vector impulse(kNumSteps);
  impulse[0] = 1;
  const auto decay = [&](double a) {
    return outputs(realization::DiagonalSystem{.a = {a}, .b = {1}, .c = {1}, .d = 0}, impulse);
  };
  return {{"window", impulse_response(realization::shift_register(kOrder))},
          {"fast", decay(0.8)},
          {"slow", decay(0.95)},
          {"sum", impulse_response(realization::oldest_register_sums(kOrder))},
          {"oscillator", outputs(realization::oscillator(0.3), impulse)}};
}

Json points(const std::vector<std::complex<double>>& values) {
  Json out = Json::array();
  for (const auto& z : values) out.push_back({z.real(), z.imag()});
  return out;
}

Json poles() {
  const Vector given = evenly(kOrder, 0.9, 0.99);
  Json out{{"window", kOrder},
           {"given", given},
           {"stored", points(realization::roots(realization::from_roots(given)))},
           {"oscillator", points(realization::roots(realization::oscillator(0.3).denominator))},
           {"errors", Json::array()}};
  for (size_t order = 1; order <= kOrder; ++order)
    out["errors"].push_back({order, error_of_poles_near_one(order)});
  return out;
}

Json bilinear() {
  Json out = Json::array();
  for (const auto& error : realization::bilinear_errors(2, 3, 14))
    out.push_back({error.step, error.one_step, error.at_horizon});
  return out;
}

Json as_json(const std::vector<Claim>& claims) {
  Json out = Json::array();
  for (const auto& claim : claims)
    out.push_back({{"part", claim.part},
                   {"claim", claim.what},
                   {"measured", claim.measured},
                   {"must_be", claim.must_be},
                   {"holds", claim.holds()}});
  return out;
}

int run(int argc, char** argv) {
  CLI::App app("Measures the claims of docs/realization.md.");
  bool json = false;
  app.add_flag("--json", json, "print one JSON object, with the series of the figures");
  CLI11_PARSE(app, argc, argv);
  const auto claims = measure_claims();
  if (json) {
    const Json out{{"claims", as_json(claims)},
                   {"impulse_responses", impulse_responses()},
                   {"poles", poles()},
                   {"bilinear", bilinear()}};
    fmt::print("{}\n", out.dump());
  } else {
    print(claims);
  }
  return std::ranges::all_of(claims, &Claim::holds) ? 0 : 1;
}

}  // namespace
}  // namespace bmojo::bench

int main(int argc, char** argv) { return bmojo::bench::run(argc, argv); }
