#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bmojo/data/packing.h"
#include "bmojo/data/task.h"
#include "bmojo/train/recipe.h"

namespace bmojo::train {

// Rows of tokens with what is due at each; kNotScored where nothing is due.
struct Batch {
  at::Tensor ids, targets;         // [B, L] int64
  std::vector<int64_t> documents;  // [B * L]; empty: each row is one document
  at::Tensor sources;              // [B, L] of a task: where what is due stands, or kNoSource
  // Of a task: the positions that answers need in each whole row, first what is due, then the token
  // before it, which it is known by.
  std::vector<std::vector<int64_t>> wanted;
  int64_t num_scored = 0;
};

// One to be filled, row by row.
Batch empty_batch(int64_t rows, int64_t length, bool with_documents);
Reading row_of(Batch& batch, int64_t row);

// Tokens [from, from + count) of every row.
Batch columns(const Batch& batch, int64_t from, int64_t count);

// What a model is told to keep: with eidetic_rule=oracle what the answers need, else nothing.
std::vector<std::vector<int64_t>> wanted_of(const Config& config, const Batch& batch);

// Sequences [first, first + count) of a task.
Batch draw(const Task& task, uint64_t seed, Split split, int64_t first, int64_t count);

// Shards, or folders of them.
std::shared_ptr<const TokenData> open_data(const std::vector<std::string>& names);

// Where training and validation read: a task, or token shards. Every batch is a function of the
// seed and the step.
class Source {
 public:
  // Opens what the recipe names; after resolve().
  Source(const Recipe& recipe, const Plan& plan, std::optional<Task> task,
         std::shared_ptr<const TokenData> data);

  // Rows [row, row + count) of a step.
  Batch train(int64_t step, int64_t row, int64_t count) const;

  // What validation reads: `length` tokens each, whole and always the same ones.
  int64_t num_validation_rows() const { return num_validation_rows_; }
  int64_t validation_length() const { return validation_length_; }
  Batch validation(int64_t row, int64_t count) const;

  bool is_task() const { return task_.has_value(); }
  const TokenData* data() const { return data_.get(); }
  const std::string& tokenizer_text() const { return tokenizer_text_; }  // goes with checkpoints
  Json identity() const;                                                 // digests, for --resume

 private:
  Recipe recipe_;
  Plan plan_;
  std::optional<Task> task_;
  std::shared_ptr<const TokenData> data_, validation_data_;
  std::string tokenizer_text_;
  TokenRange validation_range_;
  std::unique_ptr<Packing> packing_;
  int64_t num_validation_rows_ = 0, validation_length_ = 0;
};

}  // namespace bmojo::train
