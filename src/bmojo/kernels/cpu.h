#pragma once

#include <string>
#include <vector>

#include "bmojo/kernels/parallel.h"

namespace bmojo::kernels {

// Every product that is added is fused: a CPU without AVX2 and FMA would round otherwise, so it is
// refused (Error).
void require_simd();

// The instruction sets that the kernels are built for and this CPU has, best first; use_target
// makes all kernels of the process take that one (for tests), "" the best again.
std::vector<std::string> simd_targets();
void use_target(const std::string& name);
// The best that is not above `name` (which users give as BMOJO_SIMD): one of those the kernels are
// built for, whether this CPU has it or not.
void cap_target(const std::string& name);

// How this thread computes while one of these lives, whatever it was told before: rounding to the
// nearest number, with denormal numbers flushed to zero and no traps. Then as before.
class FloatMode {
 public:
  FloatMode();
  ~FloatMode();
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
  unsigned before_;
};

// Runs tasks in this mode, in every thread.
void run(const ParallelFor& parallel, int64_t n, const Task& task);

}  // namespace bmojo::kernels
