#include "bmojo/nn/ops/history.h"

#include <torch/torch.h>

#include "bmojo/nn/ops/fused.h"
#include "bmojo/nn/ops/rows.h"

namespace bmojo::nn {

void check_history(const char* operation, const char* name_of_x, const HistoryArguments& in,
                   int64_t depth) {
  base::require(in.x.defined() && in.x.dim() == 3 && in.x.numel() > 0,
                "{}: {} must be [B, L, channels], none of them 0, got {}", operation, name_of_x,
                describe(in.x));
  check_floating(operation, name_of_x, in.x);
  const int64_t B = in.x.size(0), L = in.x.size(1);
  check_shape(operation, "tail", in.tail, {B, depth, in.x.size(2)});
  check_like(operation, "tail", in.tail, in.x);
  check_shape(operation, "positions", in.positions, {B, L});
  base::require(in.positions.scalar_type() == at::kLong, "{}: positions must be Long, got {}",
                operation, c10::toString(in.positions.scalar_type()));
  base::require(in.positions.device() == in.x.device(), "{}: positions must be on {}, got {}",
                operation, in.x.device().str(), in.positions.device().str());
  check_lengths(operation, in.lengths, B, L);
}

kernels::History history_of(const at::Tensor& x, const at::Tensor& tail,
                            const at::Tensor& positions, const at::Tensor& lengths) {
  return {.B = x.size(0),
          .L = x.size(1),
          .C = x.size(2),
          .depth = tail.size(1),
          .x = rows_of(x),
          .tail = floats(tail),
          .positions = positions.const_data_ptr<int64_t>(),
          .lengths = lengths.defined() ? lengths.const_data_ptr<int64_t>() : nullptr};
}

at::Tensor shifted(const at::Tensor& source, int64_t i, const at::Tensor& positions) {
  const int64_t L = positions.size(1), depth = source.size(1) - L;
  const auto before = source.narrow(1, depth - i, L);
  return i == 0 ? before : before.masked_fill((positions < i).unsqueeze(2), 0);
}

at::Tensor next_tail(const at::Tensor& source, int64_t depth, const std::vector<int64_t>& lengths) {
  const int64_t B = source.size(0), rows = source.size(1);
  // A copy: the state must not hold on to the whole call.
  if (lengths.empty()) return source.narrow(1, rows - depth, depth).clone();
  std::vector<int64_t> index;
  for (int64_t b = 0; b < B; ++b)
    for (int64_t j = 0; j < depth; ++j)
      index.push_back(b * rows + lengths[static_cast<size_t>(b)] + j);
  const auto where = torch::tensor(index, torch::kLong).to(source.device());
  return take_rows(source.flatten(0, 1), where).unflatten(0, {B, depth});
}

at::Tensor without_padding(const at::Tensor& x, const std::vector<int64_t>& lengths) {
  if (lengths.empty()) return x;
  const auto ends = lengths_tensor(lengths).to(x.device()).unsqueeze(1);
  auto padding = at::arange(x.size(1), ends.options()) >= ends;
  while (padding.dim() < x.dim()) padding = padding.unsqueeze(-1);
  return x.masked_fill(padding, 0);
}

}  // namespace bmojo::nn
