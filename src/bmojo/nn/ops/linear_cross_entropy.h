#pragma once

#include <ATen/core/Tensor.h>

namespace bmojo::nn {

// A target that is not scored.
inline constexpr int64_t kUnscored = -100;

//   loss = scale · Σ_t -ln softmax(W h_t)[target_t] over the scored t
// hidden [T, D], weight [V, D], target int64 [T] (0 … V - 1 or kUnscored) -> a scalar. Only scored
// positions are computed, some at a time: of the logits no more than loss_buffer_bytes() exist, so
// those of a whole batch only where it is small. Where a gradient is wanted it is made on the way,
// which saves computing the logits a second time; one backward pass then hands it over.
at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                const at::Tensor& target, double scale = 1);
at::Tensor linear_cross_entropy_reference(const at::Tensor& hidden, const at::Tensor& weight,
                                          const at::Tensor& target, double scale = 1);

// Of the logits that exist at a time.
int64_t loss_buffer_bytes(int64_t vocab_size);

}  // namespace bmojo::nn
