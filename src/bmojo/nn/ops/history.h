#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "bmojo/kernels/history.h"

// What operations that read earlier tokens share. Shapes: B sequences, L tokens, C channels, and
// the `depth` rows that came before the call, the newest last.

namespace bmojo::nn {

// `operation: argument …` for a tail that is not [B, depth, C] like x [B, L, C], positions that are
// not int64 [B, L], lengths that are not B numbers from 0 to L.
struct HistoryArguments {
  const at::Tensor &x, &tail, &positions;
  const std::vector<int64_t>& lengths;
};
void check_history(const char* operation, const char* name_of_x, const HistoryArguments& in,
                   int64_t depth);

// The kernel's view; `lengths` [B] int64, or undefined. All but x are dense.
kernels::History history_of(const at::Tensor& x, const at::Tensor& tail,
                            const at::Tensor& positions, const at::Tensor& lengths);

// For references. x_{t-i} of source = [tail | x] [B, depth + L, C]; 0 where it lies before the
// document.
at::Tensor shifted(const at::Tensor& source, int64_t i, const at::Tensor& positions);
// The last depth rows of [tail | x] of each sequence: what the next call finds before its first
// token.
at::Tensor next_tail(const at::Tensor& source, int64_t depth, const std::vector<int64_t>& lengths);
// x [B, L, …] with 0 behind each sequence's length.
at::Tensor without_padding(const at::Tensor& x, const std::vector<int64_t>& lengths);

}  // namespace bmojo::nn
