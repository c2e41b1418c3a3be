#include "bmojo/nn/ops/memory_attention.h"

#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "bmojo/kernels/memory_attention.h"
#include "bmojo/nn/ops/fused.h"
#include "bmojo/nn/ops/rows.h"

namespace bmojo::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

enum Input { kQ, kPool, kBias, kIndex, kFrom, kUntil, kNumInputs };

struct View : kernels::MemoryAttention {
  std::vector<kernels::QueryRun> runs;  // what `pieces` points to
};

View view(const variable_list& in, at::IntArrayRef spans) {
  View v;
  for (size_t i = 0; i < spans.size(); i += 2) v.runs.push_back({spans[i], spans[i + 1]});
  v.num_pieces = in[kIndex].size(0);
  v.num_keys = in[kIndex].size(1);
  v.num_heads = in[kQ].size(1);
  v.num_kv_heads = in[kPool].size(2);
  v.head = in[kQ].size(2);
  v.pieces = v.runs.data();
  v.q = floats(in[kQ]);
  v.q_stride = in[kQ].stride(0);
  v.pool = floats(in[kPool]);
  v.index = in[kIndex].const_data_ptr<int64_t>();
  v.from = in[kFrom].const_data_ptr<int64_t>();
  v.until = in[kUntil].const_data_ptr<int64_t>();
  v.bias = floats(in[kBias]);
  v.num_biased = in[kBias].defined() ? in[kBias].size(1) : 0;
  return v;
}

// Heads dense in a token; tokens may lie apart.
at::Tensor with_heads(const at::Tensor& q) {
  const bool dense = (q.stride(2) == 1 || q.size(2) == 1) &&
                     (q.stride(1) == q.size(2) || q.size(1) == 1) &&
                     (q.stride(0) >= q.size(1) * q.size(2) || q.size(0) == 1);
  return dense ? q : q.contiguous();
}

struct FusedAttention : torch::autograd::Function<FusedAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& pool,
                            const std::optional<at::Tensor>& bias, const at::Tensor& index,
                            const at::Tensor& from, const at::Tensor& until,
                            const std::vector<int64_t>& spans, bool differentiable) {
    const variable_list in = {
        with_heads(q),      pool.contiguous(), bias ? bias->contiguous() : at::Tensor(),
        index.contiguous(), from.contiguous(), until.contiguous()};
    const auto v = view(in, spans);
    int64_t covered = 0;
    for (const auto& run : v.runs) covered += run.count;
    const int64_t T = q.size(0);
    auto out = at::empty({T, v.num_heads, v.head}, q.options());
    if (covered < T) out.zero_();
    at::Tensor log_sum;
    if (differentiable) log_sum = at::empty({T, v.num_heads}, q.options());
    kernels::memory_attention(v, out.data_ptr<float>(),
                              differentiable ? log_sum.data_ptr<float>() : nullptr, parallel_for);
    if (differentiable) {
      auto saved = in;
      saved.insert(saved.end(), {out, log_sum});
      context->save_for_backward(saved);
      context->saved_data["spans"] = spans;
      context->saved_data["covered"] = covered == T;
    }
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    first_derivative_only("memory_attention");
    const auto in = context->get_saved_variables();
    const auto v = view(in, context->saved_data["spans"].toIntVector());
    const auto grad_out = grads[0].contiguous();
    auto q = at::empty(in[kQ].sizes(), grad_out.options());
    if (!context->saved_data["covered"].toBool()) q.zero_();
    const auto pool = at::zeros_like(in[kPool]);
    const auto bias = in[kBias].defined() ? at::empty_like(in[kBias]) : at::Tensor();
    kernels::memory_attention_backward(v, floats(in[kNumInputs]), floats(in[kNumInputs + 1]),
                                       floats(grad_out),
                                       {.q = q.data_ptr<float>(),
                                        .pool = pool.data_ptr<float>(),
                                        .bias = bias.defined() ? bias.data_ptr<float>() : nullptr},
                                       parallel_for);
    return {q, pool, bias, {}, {}, {}, {}, {}};
  }
};

void check(const MemoryAttention& a) {
  constexpr auto kName = "memory_attention";
  base::require(a.q.defined() && a.q.dim() == 3 && a.q.size(0) == a.runs.num_tokens,
                "{}: q must be [{}, H, d], got {}", kName, a.runs.num_tokens, describe(a.q));
  base::require(a.q.size(1) > 0 && a.q.size(2) > 0, "memory_attention: q must not be empty, got {}",
                describe(a.q));
  base::require(a.pool.defined() && a.pool.dim() == 4 && a.pool.size(1) == 2 &&
                    a.pool.size(0) > 0 && a.pool.size(3) == a.q.size(2),
                "{}: pool must be [R, 2, G, {}], got {}", kName, a.q.size(2), describe(a.pool));
  base::require(a.pool.size(2) > 0 && a.q.size(1) % a.pool.size(2) == 0,
                "{}: q must have a multiple of {} heads, got {}", kName, a.pool.size(2),
                a.q.size(1));
  check_floating(kName, "q", a.q);
  check_like(kName, "pool", a.pool, a.q);
  base::require(a.runs.token.device() == a.q.device(), "{}: runs must be on {}, got {}", kName,
                a.q.device().str(), a.runs.token.device().str());
  const int64_t P = std::ssize(a.runs.runs);
  base::require(a.keys.index.defined() && a.keys.index.dim() == 2 && a.keys.index.size(0) == P &&
                    a.keys.index.size(1) > 0,
                "{}: index must be [{}, S], got {}", kName, P, describe(a.keys.index));
  const int64_t S = a.keys.index.size(1);
  for (const auto& [name, tensor] :
       {std::pair("index", a.keys.index), {"from", a.keys.from}, {"until", a.keys.until}}) {
    check_shape(kName, name, tensor, {P, S});
    base::require(tensor.scalar_type() == at::kLong, "{}: {} must be Long, got {}", kName, name,
                  c10::toString(tensor.scalar_type()));
    base::require(tensor.device() == a.q.device(), "{}: {} must be on {}, got {}", kName, name,
                  a.q.device().str(), tensor.device().str());
  }
  if (a.bias.defined()) {
    base::require(a.bias.dim() == 2 && a.bias.size(0) == P && a.bias.size(1) <= S,
                  "{}: bias must be [{}, up to {}], got {}", kName, P, S, describe(a.bias));
    check_wide(kName, "bias", a.bias, a.q);
  }
  if (a.q.is_cpu() && a.keys.index.numel() > 0) {
    const auto [low, high] = at::aminmax(a.keys.index);
    base::require(low.item<int64_t>() >= 0 && high.item<int64_t>() < a.pool.size(0),
                  "{}: index must be from 0 to {}, got {} to {}", kName, a.pool.size(0) - 1,
                  low.item<int64_t>(), high.item<int64_t>());
  }
}

}  // namespace

QueryRuns::QueryRuns(std::vector<Run> list, int64_t tokens, at::Device device)
    : runs(std::move(list)), num_tokens(tokens) {
  for (const auto& run : runs) max_queries = std::max(max_queries, run.count);
  base::require(max_queries < int64_t{1} << 24,
                "memory_attention: a run must be below 2^24, got {}", max_queries);
  const int64_t P = std::ssize(runs), Q = max_queries;
  std::vector<int64_t> from(P * Q, num_tokens), to(num_tokens, P * Q);
  for (int64_t i = 0; i < P; ++i) {
    const auto [first, count] = runs[i];
    base::require(first >= 0 && count >= 0 && count <= num_tokens && first <= num_tokens - count,
                  "memory_attention: a run must lie within {} tokens, got {} from {}", num_tokens,
                  count, first);
    for (int64_t n = 0; n < count; ++n) {
      base::require(to[first + n] == P * Q,
                    "memory_attention: runs must not overlap, got token {} twice", first + n);
      from[i * Q + n] = runs[i].first + n;
      to[runs[i].first + n] = i * Q + n;
    }
  }
  token = from_host(from, device);
  query = from_host(to, device);
}

at::Tensor memory_attention(const MemoryAttention& a) {
  check(a);
  if (!use_kernel({a.q, a.bias})) return memory_attention_reference(a);
  std::vector<int64_t> spans;
  for (const auto& run : a.runs.runs) spans.insert(spans.end(), {run.first, run.count});
  const auto bias = a.bias.defined() ? std::optional(a.bias) : std::nullopt;
  return FusedAttention::apply(a.q, a.pool, bias, a.keys.index, a.keys.from, a.keys.until, spans,
                               differentiable({a.q, a.pool, a.bias}));
}

at::Tensor memory_attention_reference(const MemoryAttention& a) {
  const int64_t H = a.q.size(1), d = a.q.size(2), G = a.pool.size(2), P = std::ssize(a.runs.runs),
                Q = a.runs.max_queries, S = a.keys.index.size(1);
  const auto zero_row = [](const at::Tensor& x) {
    return at::cat({x, at::zeros_like(x.narrow(0, 0, 1))});
  };
  const auto rows = take_rows(a.pool, a.keys.index.flatten()).unflatten(0, {P, S});
  const auto k = rows.select(2, 0).permute({0, 2, 3, 1});  // [P, G, d, S]
  const auto v = rows.select(2, 1).permute({0, 2, 1, 3});  // [P, G, S, d]
  const auto queries = take_rows(zero_row(a.q), a.runs.token)
                           .view({P, Q, G, H / G, d})
                           .permute({0, 2, 3, 1, 4})
                           .reshape({P, G, H / G * Q, d});
  auto scores = at::matmul(queries, k);
  if (scores.scalar_type() != at::kDouble) scores = scores.to(at::kFloat);
  scores = scores / std::sqrt(static_cast<double>(d));
  if (a.bias.defined())
    scores =
        scores + at::constant_pad_nd(a.bias, {0, S - a.bias.size(1)}).unsqueeze(1).unsqueeze(1);
  const auto n = at::arange(Q, a.keys.from.options()).view({1, Q, 1});
  // A place without a query sees everything, so that its softmax stays finite; nothing reads it.
  const auto unused = (a.runs.token == a.runs.num_tokens).view({P, Q, 1});
  const auto seen = (a.keys.from.unsqueeze(1) <= n) & (n < a.keys.until.unsqueeze(1));
  const auto hidden = (~(seen | unused)).repeat({1, H / G, 1}).unsqueeze(1);
  scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  const auto mixed = at::matmul(at::softmax(scores, -1).to(a.q.scalar_type()), v);
  const auto by_query =
      mixed.view({P, G, H / G, Q, d}).permute({0, 3, 1, 2, 4}).reshape({P * Q, H, d});
  return take_rows(zero_row(by_query), a.runs.query);
}

}  // namespace bmojo::nn
