#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace bmojo::nn {

// AdamW over groups of parameters with rates of their own:
//   m ← β₁ m + (1 - β₁) g,  v ← β₂ v + (1 - β₂) g²,
//   p ← p - rate (weight_decay p + (m / (1 - β₁ⁿ)) / (√(v / (1 - β₂ⁿ)) + eps))
// by torch's fused kernel: one pass over p, g, m and v.
struct AdamWGroup {
  std::vector<at::Tensor> parameters;
  double rate = 1e-3, weight_decay = 0.1;
};

class AdamW {
 public:
  explicit AdamW(std::vector<AdamWGroup> groups, double beta1 = 0.9, double beta2 = 0.95,
                 double eps = 1e-8);

  // One step from the parameters' gradients (those without one are left alone). Returns the norm
  // over all gradients; where it exceeds max_norm (0: never), the step is that of gradients scaled
  // down to it. The scaling is part of the update's pass: gradients are read once for the norm and
  // once for the update. A norm that is not finite changes nothing.
  double step(double max_norm = 0);

  std::vector<AdamWGroup>& groups() { return groups_; }
  // Norms of the last step's gradients, a group each.
  const std::vector<double>& group_norms() const { return group_norms_; }

  // What a run has to keep to go on, a group each; `steps` are counts as floats, as the kernel
  // wants them. Values may be written into the tensors.
  struct Moments {
    std::vector<at::Tensor> first, second, steps;  // a parameter each
  };
  const std::vector<Moments>& moments() const { return moments_; }

 private:
  std::vector<AdamWGroup> groups_;
  std::vector<Moments> moments_;  // a group each
  std::vector<double> group_norms_;
  double beta1_, beta2_, eps_;
};

}  // namespace bmojo::nn
