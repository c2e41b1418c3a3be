#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bmojo/base/thread_pool.h"
#include "bmojo/eval/observer.h"
#include "bmojo/infer/state.h"
#include "bmojo/infer/weights.h"

namespace bmojo::infer {

// Tokens that a sequence goes on with.
struct Input {
  State* state = nullptr;
  std::span<const int64_t> ids;
  // As in eval::Reading: each token's document, and what eidetic_rule=oracle keeps.
  std::span<const int64_t> documents = {};
  const std::vector<int64_t>* wanted = nullptr;
};

// A model that reads, without torch. Immutable: any number of threads may read with it, each with
// states of its own.
//
// Every sum has one order that depends on neither the batch, nor how a text is cut into calls, nor
// the number of threads, nor the width of vectors: whole = segments = steps = batched, bit for bit.
class Model {
 public:
  // `config`: the checkpoint's, where wanted with other sizes of the memories. threads 0: one a
  // core. No type: the file's own (weights.h).
  Model(const model::TensorFolder& tensors, model::Config config,
        std::optional<WeightType> type = {}, int threads = 0);

  const model::Config& config() const { return weights_.config; }
  WeightType type() const { return weights_.type; }
  State begin() const { return initial_state(config()); }

  // Reads on in every sequence; hidden [Σ tokens, D] after the last norm, sequence by sequence.
  // Error where an id is not of the vocabulary; the states are then as before. Where memory runs
  // out (std::bad_alloc) they are of no more use.
  void forward(std::span<const Input> inputs, float* hidden,
               eval::Observer* observer = nullptr) const;
  // hidden [n, D] -> out [n, V]
  void logits(const float* hidden, int64_t n, float* out) const;

  base::ThreadPool& pool() const { return *pool_; }

 private:
  std::unique_ptr<base::ThreadPool> pool_;  // a mutable resource, shared by all callers
  Weights weights_;
  std::vector<double> frequencies_;  // of the rotary encoding
  std::vector<float> predictor_;     // c_i
};

}  // namespace bmojo::infer
