// Apart from the rest: the one file that is compiled with OpenMP (tools/torch.cmake).
#include "bmojo/nn/ops/parallel.h"

#include <ATen/Parallel.h>

#include <atomic>

#ifndef INTRA_OP_PARALLEL
#error "at::parallel_for would run on one thread: this file must be compiled with -fopenmp"
#endif

namespace bmojo::nn {

void parallel_for(int64_t n, const kernels::Task& task) {
  const int64_t threads = std::min<int64_t>(n, at::get_num_threads());
  if (threads <= 1 || at::in_parallel_region()) return kernels::serial_for(n, task);
  std::atomic<int64_t> next = 0;
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    for (int64_t i = next++; i < n; i = next++) task(i);
  });
}

}  // namespace bmojo::nn
