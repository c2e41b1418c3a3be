#include "bmojo/nn/ssm_trace.h"

#include <torch/torch.h>

#include "bmojo/base/error.h"

namespace bmojo::nn {
namespace {

// Δ_t A, Δ_t = softplus(dt_t + dt_bias)
at::Tensor exponents(const SsmTrace& ssm) {
  base::require(ssm.dt.defined(), "poles: the SSM must be kept by its call, got none");
  return at::softplus(ssm.dt + ssm.dt_bias).unsqueeze(-1) * ssm.A;
}

}  // namespace

at::Tensor poles(const SsmTrace& ssm) { return exponents(ssm).exp(); }

at::Tensor time_constants(const SsmTrace& ssm) { return -exponents(ssm).reciprocal(); }

}  // namespace bmojo::nn
