#pragma once

#include "bmojo/model/config.h"

namespace bmojo::model {

// Floating-point operations of a training step for each token of a sequence of `length`: weight
// products and attention products, forward and backward (2 + 4 for each product), nothing else.
double training_flops_per_token(const Config& config, int64_t length);

}  // namespace bmojo::model
