#include "bmojo/nn/ops/selective_scan.h"

#include <torch/torch.h>

#include <bit>

#include "bmojo/kernels/selective_scan.h"
#include "bmojo/nn/ops/fused.h"

namespace bmojo::nn {
namespace {

// One block after the other, token by token inside; `h` [B, n, T, …] receives the result.
void scan_blocks(const at::Tensor& a, const at::Tensor& b, const at::Tensor& h0, at::Tensor h) {
  const int64_t num_blocks = a.size(1), T = a.size(2);
  // All blocks at once from h = 0: the state each leaves, and what is left of the state before it.
  auto left = b.select(2, 0).clone(), decay = a.select(2, 0).clone();
  for (int64_t i = 1; num_blocks > 1 && i < T; ++i) {
    left = at::addcmul(b.select(2, i), a.select(2, i), left);
    decay.mul_(a.select(2, i));
  }
  // The state each block finds: the only part that is serial over blocks.
  auto before = at::empty_like(left);
  before.select(1, 0).copy_(h0);
  for (int64_t j = 1; j < num_blocks; ++j)
    before.select(1, j).copy_(
        at::addcmul(left.select(1, j - 1), decay.select(1, j - 1), before.select(1, j - 1)));
  // All blocks again, each from the state before it.
  for (int64_t i = 0; i < T; ++i) {
    before = at::addcmul(b.select(2, i), a.select(2, i), before);
    h.select(2, i).copy_(before);
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

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

enum Input { kX, kDt, kZ, kB, kC, kA, kD, kDtBias, kH0, kStarts, kLengths, kNumInputs };

// The kernel's view of saved tensors, in the order of Input.
kernels::Scan view(const variable_list& in) {
  return {.B = in[kX].size(0),
          .L = in[kX].size(1),
          .E = in[kX].size(2),
          .N = in[kA].size(1),
          .x = rows_of(in[kX]),
          .dt = rows_of(in[kDt]),
          .z = rows_of(in[kZ]),
          .input = rows_of(in[kB]),
          .output = rows_of(in[kC]),
          .A = floats(in[kA]),
          .D = floats(in[kD]),
          .dt_bias = floats(in[kDtBias]),
          .h0 = floats(in[kH0]),
          .starts = in[kStarts].defined()
                        ? reinterpret_cast<const uint8_t*>(in[kStarts].const_data_ptr<bool>())
                        : nullptr,
          .lengths = in[kLengths].defined() ? in[kLengths].const_data_ptr<int64_t>() : nullptr};
}

struct FusedScan : torch::autograd::Function<FusedScan> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& dt,
                               const at::Tensor& z, const at::Tensor& B, const at::Tensor& C,
                               const at::Tensor& A, const at::Tensor& D, const at::Tensor& dt_bias,
                               const at::Tensor& h0, const std::optional<at::Tensor>& starts,
                               const std::optional<at::Tensor>& lengths, bool differentiable) {
    const variable_list in = {with_rows(x),
                              with_rows(dt),
                              with_rows(z),
                              with_rows(B),
                              with_rows(C),
                              A.contiguous(),
                              D.contiguous(),
                              dt_bias.contiguous(),
                              h0.contiguous(),
                              starts.value_or(at::Tensor()),
                              lengths.value_or(at::Tensor())};
    const auto scan = view(in);
    const auto y = at::empty({scan.B, scan.L, scan.E}, x.options());
    const auto h = at::empty({scan.B, scan.E, scan.N}, x.options());
    at::Tensor block_states;
    if (differentiable)
      block_states = at::empty({scan.B, kernels::scan_blocks(scan.L), scan.N, scan.E}, x.options());
    kernels::selective_scan(scan, y.data_ptr<float>(), h.data_ptr<float>(),
                            block_states.defined() ? block_states.data_ptr<float>() : nullptr,
                            parallel_for);
    if (differentiable) {
      auto saved = in;
      saved.push_back(block_states);
      context->save_for_backward(saved);
    }
    return {y, h};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    first_derivative_only("selective_scan");
    const auto in = context->get_saved_variables();
    const auto scan = view(in);
    const auto options = in[kX].options();
    const auto grad_y = with_rows(grads[0]);
    const auto grad_h = grads[1].contiguous();
    const auto like = [&](at::IntArrayRef shape) { return at::empty(shape, options); };
    const auto [B, L, E, N] = std::tuple(scan.B, scan.L, scan.E, scan.N);
    const auto x = like({B, L, E}), dt = like({B, L, E}), z = like({B, L, E}),
               input = like({B, L, N}), output = like({B, L, N}), A = like({B, E, N}),
               D = like({B, E}), dt_bias = like({B, E}), h0 = like({B, E, N});
    const auto to = [](const at::Tensor& t) { return t.data_ptr<float>(); };
    kernels::selective_scan_backward(scan, floats(in[kNumInputs]), rows_of(grad_y), floats(grad_h),
                                     {.x = to(x),
                                      .dt = to(dt),
                                      .z = to(z),
                                      .input = to(input),
                                      .output = to(output),
                                      .A = to(A),
                                      .D = to(D),
                                      .dt_bias = to(dt_bias),
                                      .h0 = to(h0)},
                                     parallel_for);
    return {x,
            dt,
            z,
            input,
            output,
            A.sum(0),
            D.sum(0),
            dt_bias.sum(0),
            h0,
            at::Tensor(),
            at::Tensor(),
            at::Tensor()};
  }
};

void check(const SelectiveScan& s) {
  constexpr auto kName = "selective_scan";
  base::require(s.x.defined() && s.x.dim() == 3 && s.x.numel() > 0,
                "{}: x must be [B, L, E], none of them 0, got {}", kName, describe(s.x));
  check_floating(kName, "x", s.x);
  base::require(s.A.defined() && s.A.dim() == 2 && s.A.size(1) > 0, "{}: A must be [E, N], got {}",
                kName, describe(s.A));
  const int64_t B = s.x.size(0), L = s.x.size(1), E = s.x.size(2), N = s.A.size(1);
  check_shape(kName, "A", s.A, {E, N});
  check_wide(kName, "A", s.A, s.x);
  for (const auto& [name, tensor] : {std::pair("dt", s.dt), {"z", s.z}})
    check_shape(kName, name, tensor, {B, L, E});
  for (const auto& [name, tensor] : {std::pair("B", s.B), {"C", s.C}})
    check_shape(kName, name, tensor, {B, L, N});
  for (const auto& [name, tensor] : {std::pair("D", s.D), {"dt_bias", s.dt_bias}})
    check_shape(kName, name, tensor, {E});
  check_shape(kName, "h0", s.h0, {B, E, N});
  for (const auto& [name, tensor] : {std::pair("dt", s.dt), {"z", s.z}, {"B", s.B}, {"C", s.C}})
    check_like(kName, name, tensor, s.x);
  for (const auto& [name, tensor] : {std::pair("D", s.D), {"dt_bias", s.dt_bias}, {"h0", s.h0}})
    check_like(kName, name, tensor, s.A);
  if (s.starts.defined()) {
    check_shape(kName, "starts", s.starts, {B, L});
    base::require(s.starts.device() == s.x.device(), "{}: starts must be on {}, got {}", kName,
                  s.x.device().str(), s.starts.device().str());
    base::require(s.starts.scalar_type() == at::kBool, "{}: starts must be Bool, got {}", kName,
                  c10::toString(s.starts.scalar_type()));
  }
  check_lengths(kName, s.lengths, B, L);
  if (!s.A.is_cpu()) return;  // elsewhere a look at the numbers would wait for them
  const auto largest = s.A.detach().max().item<double>();
  base::require(!(largest > 0), "{}: A must be at most 0, got {}", kName, largest);
}

}  // namespace

at::Tensor linear_scan(const at::Tensor& a, const at::Tensor& b, const at::Tensor& h0) {
  return LinearScan::apply(a, b, h0);
}

ScanResult selective_scan(const SelectiveScan& s) {
  check(s);
  if (!use_kernel({s.x, s.A, s.h0})) return selective_scan_reference(s);
  const auto optional = [](const at::Tensor& x) {
    return x.defined() ? std::optional(x.contiguous()) : std::nullopt;
  };
  const auto out =
      FusedScan::apply(s.x, s.dt, s.z, s.B, s.C, s.A, s.D, s.dt_bias, s.h0, optional(s.starts),
                       optional(lengths_tensor(s.lengths)),
                       differentiable({s.x, s.dt, s.z, s.B, s.C, s.A, s.D, s.dt_bias, s.h0}));
  return {out[0], out[1]};
}

ScanResult selective_scan_reference(const SelectiveScan& s) {
  const auto wide = s.A.scalar_type();
  const int64_t L = s.x.size(1);
  auto x = s.x.to(wide);
  auto delta = at::softplus(s.dt.to(wide) + s.dt_bias);
  at::Tensor padding;
  if (!s.lengths.empty()) {
    // Padding has Δ = 0: the state stays as it is.
    const auto lengths = lengths_tensor(s.lengths).to(x.device()).unsqueeze(1);
    padding = (at::arange(L, lengths.options()) >= lengths).unsqueeze(2);
    x = x.masked_fill(padding, 0);
    delta = delta.masked_fill(padding, 0);
  }
  auto decay = (delta.unsqueeze(3) * s.A).exp();  // [B, L, E, N]
  if (s.starts.defined()) {
    const auto starts = s.starts.unsqueeze(2);
    decay = decay.masked_fill((padding.defined() ? starts & ~padding : starts).unsqueeze(3), 0);
  }
  const auto input = (delta * x).unsqueeze(3) * s.B.to(wide).unsqueeze(2);
  const auto h = linear_scan(decay, input, s.h0);
  const auto read = at::matmul(h, s.C.to(wide).unsqueeze(3)).squeeze(3) + s.D * x;
  auto y = read.to(s.z.scalar_type()) * at::silu(s.z);
  if (padding.defined()) y = y.masked_fill(padding, 0);
  return {y, h.select(1, L - 1)};
}

}  // namespace bmojo::nn
