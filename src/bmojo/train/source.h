#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bmojo/data/batch.h"
#include "bmojo/train/recipe.h"

namespace bmojo::train {

// Numbers [B, L] of a batch as a tensor of its own.
at::Tensor tensor_of(const data::Batch& batch, const std::vector<int64_t>& numbers);

// What a model is told to keep: with eidetic_rule=oracle what the answers need, else nothing.
std::vector<std::vector<int64_t>> wanted_of(const model::Config& config, const data::Batch& batch);

// Shards, or folders of them.
std::shared_ptr<const data::TokenData> open_data(const std::vector<std::string>& names);

// Where training and validation read: a task, or token shards. Every batch is a function of the
// seed and the step.
class Source {
 public:
  // Opens what the recipe names; after resolve().
  Source(const Recipe& recipe, const Plan& plan, std::optional<data::Task> task,
         std::shared_ptr<const data::TokenData> data);

  // Sequences [sequence, sequence + count) of a step.
  data::Batch train(int64_t step, int64_t sequence, int64_t count) const;

  // What validation reads: `length` tokens each, whole and always the same ones.
  int64_t num_validation_sequences() const { return num_validation_sequences_; }
  int64_t validation_length() const { return validation_length_; }
  data::Batch validation(int64_t sequence, int64_t count) const;

  bool is_task() const { return task_.has_value(); }
  const data::TokenData* data() const { return data_.get(); }
  const std::string& tokenizer_text() const { return tokenizer_text_; }  // goes with checkpoints
  base::Json identity() const;                                           // digests, for --resume

 private:
  Recipe recipe_;
  Plan plan_;
  std::optional<data::Task> task_;
  std::shared_ptr<const data::TokenData> data_, validation_data_;
  std::string tokenizer_text_;
  data::TokenRange validation_range_;
  std::unique_ptr<data::Packing> packing_;
  int64_t num_validation_sequences_ = 0, validation_length_ = 0;
};

}  // namespace bmojo::train
