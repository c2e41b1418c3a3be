#include "bmojo/nn/adamw.h"

#include <torch/torch.h>

#include <cmath>

namespace bmojo::nn {

AdamW::AdamW(std::vector<AdamWGroup> groups, double beta1, double beta2, double eps)
    : groups_(std::move(groups)), beta1_(beta1), beta2_(beta2), eps_(eps) {
  for (const auto& group : groups_) {
    Moments moments;
    for (const auto& parameter : group.parameters) {
      moments.first.push_back(at::zeros_like(parameter).detach());
      moments.second.push_back(at::zeros_like(parameter).detach());
      moments.steps.push_back(at::zeros({}, at::kFloat));
    }
    moments_.push_back(std::move(moments));
  }
}

double AdamW::step(double max_norm) {
  torch::NoGradGuard no_grad;
  double sum = 0;
  group_norms_.clear();
  for (const auto& group : groups_) {
    double group_sum = 0;
    for (const auto& parameter : group.parameters)
      if (parameter.grad().defined()) {
        const auto norm = at::norm(parameter.grad()).item<double>();
        group_sum += norm * norm;
      }
    group_norms_.push_back(std::sqrt(group_sum));
    sum += group_sum;
  }
  const double norm = std::sqrt(sum);
  if (!std::isfinite(norm)) return norm;
  // The kernel divides each gradient by this while it reads it.
  std::optional<at::Tensor> scale;
  if (max_norm > 0 && norm > max_norm) scale = at::full({}, norm / max_norm, at::kFloat);
  for (size_t i = 0; i < groups_.size(); ++i) {
    std::vector<at::Tensor> parameters, gradients, first, second, unused, steps;
    for (size_t j = 0; j < groups_[i].parameters.size(); ++j) {
      const auto& parameter = groups_[i].parameters[j];
      if (!parameter.grad().defined()) continue;
      parameters.push_back(parameter);
      gradients.push_back(parameter.grad());
      first.push_back(moments_[i].first[j]);
      second.push_back(moments_[i].second[j]);
      steps.push_back(moments_[i].steps[j].add_(1));
    }
    if (parameters.empty()) continue;
    at::_fused_adamw_(parameters, gradients, first, second, unused, steps, groups_[i].rate, beta1_,
                      beta2_, groups_[i].weight_decay, eps_, /*amsgrad=*/false,
                      /*maximize=*/false, scale);
  }
  return norm;
}

}  // namespace bmojo::nn
