#pragma once

#include "bmojo/kernels/parallel.h"

namespace bmojo::nn {

// torch's threads; a thread takes the next task when it is done with one.
void parallel_for(int64_t n, const kernels::Task& task);

}  // namespace bmojo::nn
