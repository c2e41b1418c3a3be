#include "bmojo/nn/sample.h"

#include <torch/torch.h>

#include <random>

#include "bmojo/base/error.h"

namespace bmojo::nn {
namespace {

// What may be drawn: the top_k most likely, of those the fewest whose mass reaches top_p, of those
// the ones at least min_p as likely as the first.
at::Tensor filtered(const at::Tensor& log_p, const SampleOptions& options) {
  auto [sorted, order] = at::softmax(log_p / options.temperature, -1).sort(-1, /*descending=*/true);
  auto keep = at::ones_like(sorted, at::kBool);
  if (options.top_k > 0 && options.top_k < keep.size(0)) keep.slice(0, options.top_k).fill_(false);
  if (options.top_p < 1) keep &= sorted.cumsum(0) - sorted < options.top_p;
  keep &= sorted >= options.min_p * sorted[0];
  keep[0] = true;  // the most likely always stays
  return at::zeros_like(sorted).scatter(0, order, sorted * keep);
}

int64_t draw(const at::Tensor& log_p, const SampleOptions& options, std::mt19937_64& random) {
  // So near to 0 the division would overflow, and the most likely has all the mass.
  if (options.temperature < 1e-6) return log_p.argmax().item<int64_t>();
  const auto mass = filtered(log_p.to(at::kDouble), options).cumsum(0);
  const double total = mass[-1].item<double>();
  const double point = std::uniform_real_distribution<double>(0, total)(random);
  const auto id = at::searchsorted(mass, point, /*out_int32=*/false, /*right=*/true);
  return std::min(id.item<int64_t>(), log_p.size(0) - 1);
}

}  // namespace

Output read_prompt(const Model& model, const std::vector<int64_t>& ids) {
  Output out;
  for (size_t from = 0; from < ids.size(); from += 512) {
    const auto end = std::min(ids.size(), from + 512);
    const std::vector<int64_t> part(ids.begin() + from, ids.begin() + end);
    out = model.forward(torch::tensor(part, at::kLong).unsqueeze(0), out.state);
  }
  return out;
}

Sample sample(const Model& model, const Output& prompt, const SampleOptions& options,
              uint64_t seed) {
  std::mt19937_64 random(seed);
  Sample out;
  auto hidden = prompt.hidden[0][-1];
  auto state = prompt.state;
  while (std::ssize(out.ids) < options.max_tokens) {
    const auto log_p = at::log_softmax(model.logits(hidden), -1);
    // Nothing may be drawn from broken weights as if they meant something.
    if (!log_p.isfinite().any().item<bool>() || log_p.isnan().any().item<bool>())
      throw RunError(
          fmt::format("generate: logits must be finite, got NaN after {} tokens", out.ids.size()));
    const int64_t id = draw(log_p, options, random);
    out.ids.push_back(id);
    out.logprobs.push_back(log_p[id].item<double>());
    if (id == model.config().eos_token_id && !options.ignore_eos) {
      out.finish = "eos";
      break;
    }
    if (std::ssize(out.ids) == options.max_tokens) break;
    auto next = model.forward(torch::tensor({id}, at::kLong).unsqueeze(0), state);
    hidden = next.hidden[0][-1];
    state = std::move(next.state);
  }
  return out;
}

}  // namespace bmojo::nn
