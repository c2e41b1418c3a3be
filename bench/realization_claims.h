// What docs/realization.md claims, measured.
#pragma once

#include <string>
#include <vector>

#include "bmojo/realization/matrix.h"

namespace bmojo::bench {

struct Claim {
  int part;          // the heading of docs/realization.md
  std::string what;  // at most 48 columns
  double measured;
  std::string must_be;  // as printed; the next two say the same
  double lowest, highest;
  bool holds() const { return measured >= lowest && measured <= highest; }
};

std::vector<Claim> measure_claims();

// `count` numbers at equal distances, both ends included.
realization::Vector evenly(size_t count, double first, double last);

// The relative error of the impulse response, over 300 steps, when a diagonal system with poles
// evenly between 0.9 and 0.99 is written as a quotient of polynomials.
double error_of_poles_near_one(size_t order);

}  // namespace bmojo::bench
