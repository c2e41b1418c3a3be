#pragma once

#include <cstdint>
#include <vector>

namespace bmojo::kernels {

// Innovation Selection's choice: of n candidates in time order the m with the largest rank, the
// earlier of two equals, NaN below every number. Fills `kept` with their places, in time order.
// Linear in n; no sort. `scratch` is kept from call to call.
void keep_largest(const std::vector<double>& innovation, int64_t m, std::vector<int64_t>& kept,
                  std::vector<int64_t>& scratch);

}  // namespace bmojo::kernels
