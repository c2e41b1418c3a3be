#include "bmojo/train/source.h"

#include <torch/torch.h>

#include <algorithm>

#include "bmojo/base/error.h"
#include "bmojo/nn/ops/linear_cross_entropy.h"

namespace bmojo::train {
namespace {

static_assert(data::kNotScored == nn::kUnscored);

// Validation sequences of an endless stream are read this long.
constexpr int64_t kEndlessValidation = 8192;

}  // namespace

at::Tensor tensor_of(const data::Batch& batch, const std::vector<int64_t>& numbers) {
  return at::from_blob(const_cast<int64_t*>(numbers.data()),  // only read
                       {batch.num_sequences, batch.length}, at::kLong)
      .clone();
}

std::vector<std::vector<int64_t>> wanted_of(const model::Config& config, const data::Batch& batch) {
  if (config.eidetic_rule == "oracle") return batch.wanted;
  return {};
}

std::shared_ptr<const data::TokenData> open_data(const std::vector<std::string>& names) {
  return std::make_shared<data::TokenData>(
      std::vector<std::filesystem::path>(names.begin(), names.end()));
}

Source::Source(const Recipe& recipe, const Plan& plan, std::optional<data::Task> task,
               std::shared_ptr<const data::TokenData> data)
    : recipe_(recipe), plan_(plan), task_(std::move(task)), data_(std::move(data)) {
  if (task_) {
    validation_length_ = task_->length;
    num_validation_sequences_ = std::max<int64_t>(recipe.eval_tokens / task_->length, 1);
    return;
  }
  tokenizer_text_ = data_->tokenizer_text();
  const int64_t total = data_->num_tokens();
  auto held_out = static_cast<int64_t>(recipe.val_fraction * static_cast<double>(total));
  packing_ = std::make_unique<data::Packing>(*data_, data::TokenRange{0, total - held_out},
                                             recipe.context, plan.num_sequences, recipe.seed);
  validation_data_ = data_;
  validation_range_ = {total - held_out, total};
  if (!recipe.val_data.empty()) {
    base::require(held_out == 0, "--val-data and --val-fraction: must be one of them, got both");
    validation_data_ = open_data(recipe.val_data);
    base::require(validation_data_->tokenizer_name() == data_->tokenizer_name() &&
                      validation_data_->tokenizer_digest() == data_->tokenizer_digest(),
                  "--val-data: must be of the tokenizer of --data, got {} {}",
                  validation_data_->tokenizer_name(), validation_data_->tokenizer_digest());
    validation_range_ = {0, validation_data_->num_tokens()};
    held_out = validation_range_.end;
  }
  if (recipe.val_data.empty() && recipe.val_fraction == 0) return;
  validation_length_ =
      recipe.context > 0 ? recipe.context : std::min(kEndlessValidation, held_out - 1);
  base::require(validation_length_ > 0 && held_out > validation_length_,
                "validation: must hold more than {} tokens, got {}",
                std::max<int64_t>(validation_length_, 1), held_out);
  num_validation_sequences_ = std::clamp<int64_t>(recipe.eval_tokens / validation_length_, 1,
                                                  (held_out - 1) / validation_length_);
}

data::Batch Source::train(int64_t step, int64_t sequence, int64_t count) const {
  if (task_)
    return data::draw(*task_, recipe_.seed, data::Split::train,
                      step * plan_.num_sequences + sequence, count);
  auto batch = data::empty_batch(count, plan_.span, /*with_documents=*/true);
  for (int64_t i = 0; i < count; ++i)
    packing_->read(sequence + i, step * plan_.span, data::sequence_of(batch, i));
  data::count_scored(batch);
  return batch;
}

// Spread evenly over what is held out, so that a short validation is of all of it.
data::Batch Source::validation(int64_t sequence, int64_t count) const {
  if (task_) return data::draw(*task_, recipe_.seed, data::Split::test, sequence, count);
  auto batch = data::empty_batch(count, validation_length_, /*with_documents=*/true);
  const int64_t room = validation_range_.end - validation_range_.begin - 1 - validation_length_;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t place =
        num_validation_sequences_ > 1 ? room * (sequence + i) / (num_validation_sequences_ - 1) : 0;
    data::read_in_order(*validation_data_, validation_range_, validation_range_.begin + place,
                        data::sequence_of(batch, i));
  }
  data::count_scored(batch);
  return batch;
}

base::Json Source::identity() const {
  if (task_) return {{"task", task_->text}};
  return {{"data", data_->digest()}, {"validation", validation_data_->digest()}};
}

}  // namespace bmojo::train
