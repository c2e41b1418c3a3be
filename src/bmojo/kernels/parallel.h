#pragma once

#include <cstdint>

#include "bmojo/base/function_ref.h"

namespace bmojo::kernels {

// Runs task(0) … task(n - 1), in any order and on any threads of the caller's. Kernels cut their
// work by the problem alone, so results do not depend on who runs what. Both are references for the
// time of a call, which therefore allocates nothing.
using Task = base::FunctionRef<void(int64_t)>;
using ParallelFor = base::FunctionRef<void(int64_t n, const Task& task)>;

// One after the other, on the calling thread.
inline void serial_for(int64_t n, const Task& task) {
  for (int64_t i = 0; i < n; ++i) task(i);
}

}  // namespace bmojo::kernels
