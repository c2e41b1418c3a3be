#pragma once

#include <cstdint>

#include "bmojo/kernels/parallel.h"

namespace bmojo::kernels {

// loss_i = -ln softmax(x_i)[target_i] for logits x [n, V]. With `gradient`, x is replaced by
// scale · d loss_i / d x_i = scale (softmax(x_i) - [j = target_i]).
void cross_entropy(float* x, const int64_t* target, int64_t n, int64_t V, bool gradient,
                   float scale, float* loss, const ParallelFor& parallel);

}  // namespace bmojo::kernels
