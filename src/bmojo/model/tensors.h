#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bmojo/model/config.h"
#include "bmojo/model/dtype.h"

namespace bmojo::model {

// How a fresh weight is drawn.
enum class Init {
  ones,       // norm gains, D
  zeros,      // projection biases
  embedding,  // N(0, 0.02^2)
  linear,     // U(±1/√fan_in)
  residual,   // linear, divided by √(number of additions to the residual stream), as GPT-2's
  dt_proj,    // U(±1/√R), as Mamba's
  dt_bias,    // softplus^-1(Δ), log Δ uniform on [log 0.001, log 0.1], as Mamba's
  a_log,      // log(1 … N) in every channel, as Mamba's
  beta,       // 1: the innovation bias
};

struct TensorSpec {
  std::string name;
  Shape shape;
  Init init;
};

// Every tensor of a model, in file order; docs/checkpoint.md lists them for people.
std::vector<TensorSpec> tensor_specs(const Config& config);

int64_t count_parameters(const Config& config);
int64_t count_parameters_without_embeddings(const Config& config);

}  // namespace bmojo::model
