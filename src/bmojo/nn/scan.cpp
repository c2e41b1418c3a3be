#include "bmojo/nn/scan.h"

#include <torch/torch.h>

#include <bit>

namespace bmojo::nn {
namespace {

// One block after the other, token by token inside; `h` [B, n, T, …] receives the result.
void scan_blocks(const at::Tensor& a, const at::Tensor& b, const at::Tensor& h0, at::Tensor h) {
  const int64_t num_blocks = a.size(1), T = a.size(2);
  // All blocks at once from h = 0: the state each leaves, and what is left of the state it found.
  auto left = b.select(2, 0).clone(), decay = a.select(2, 0).clone();
  for (int64_t i = 1; num_blocks > 1 && i < T; ++i) {
    left = at::addcmul(b.select(2, i), a.select(2, i), left);
    decay.mul_(a.select(2, i));
  }
  // The state each block finds: the only part that is serial over blocks.
  auto found = at::empty_like(left);
  found.select(1, 0).copy_(h0);
  for (int64_t j = 1; j < num_blocks; ++j)
    found.select(1, j).copy_(
        at::addcmul(left.select(1, j - 1), decay.select(1, j - 1), found.select(1, j - 1)));
  // All blocks again, each from the state it found.
  for (int64_t i = 0; i < T; ++i) {
    found = at::addcmul(b.select(2, i), a.select(2, i), found);
    h.select(2, i).copy_(found);
  }
}

at::Tensor scan(const at::Tensor& a, const at::Tensor& b, const at::Tensor& h0) {
  const int64_t L = a.size(1);
  auto h = at::empty_like(b, at::MemoryFormat::Contiguous);
  // The largest power of two up to √L; the rest of the division is one more, shorter block.
  const auto T = static_cast<int64_t>(
      std::bit_floor(static_cast<uint64_t>(std::sqrt(static_cast<double>(L)))));
  const int64_t whole = L / T * T;
  const auto blocks = [&](const at::Tensor& x) {
    return x.narrow(1, 0, whole).unflatten(1, {whole / T, T});
  };
  scan_blocks(blocks(a), blocks(b), h0, blocks(h));
  if (whole == L) return h;
  const auto rest = [&](const at::Tensor& x) { return x.narrow(1, whole, L - whole).unsqueeze(1); };
  scan_blocks(rest(a), rest(b), h.select(1, whole - 1), rest(h));
  return h;
}

struct LinearScan : torch::autograd::Function<LinearScan> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& a,
                            const at::Tensor& b, const at::Tensor& h0) {
    const auto h = scan(a, b, h0);
    context->save_for_backward({a, h0, h});
    return h;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto &a = saved[0], &h0 = saved[1], &h = saved[2];
    const int64_t L = a.size(1);
    // g_t = dh_t + a_{t+1} ⊙ g_{t+1}: the same scan, backwards in time.
    const auto first = at::zeros_like(a.narrow(1, 0, 1));
    const auto a_next = at::cat({first, a.narrow(1, 1, L - 1).flip(1)}, 1);
    const auto g = scan(a_next, grads[0].flip(1), at::zeros_like(h0)).flip(1);
    const auto h_before = at::cat({h0.unsqueeze(1), h.narrow(1, 0, L - 1)}, 1);
    return {g * h_before, g, a.select(1, 0) * g.select(1, 0)};
  }
};

}  // namespace

at::Tensor linear_scan(const at::Tensor& a, const at::Tensor& b, const at::Tensor& h0) {
  return LinearScan::apply(a, b, h0);
}

}  // namespace bmojo::nn
