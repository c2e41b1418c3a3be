#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bmojo/eval/language_model.h"
#include "bmojo/infer/model.h"
#include "bmojo/infer/snapshot.h"
#include "bmojo/model/checkpoint.h"

namespace bmojo::infer {

// A sequence's State behind the interface that every engine has.
class StateMemory : public eval::Memory {
 public:
  explicit StateMemory(State state_) : state(std::move(state_)) {}
  std::unique_ptr<eval::Memory> copy() const override {
    return std::make_unique<StateMemory>(state);
  }
  int64_t position() const override { return state.position; }

  State state;
};

class NativeLanguageModel : public eval::LanguageModel {
 public:
  // digest() of the weights, asked for when a state is saved or loaded: its file names its model.
  NativeLanguageModel(std::unique_ptr<const Model> model, std::function<std::string()> digest)
      : model_(std::move(model)), digest_(std::move(digest)) {}

  const Model& model() const { return *model_; }
  const model::Config& config() const override { return model_->config(); }
  std::string weight_type() const override { return std::string(kernels::name_of(model_->type())); }
  std::unique_ptr<eval::Memory> begin() const override {
    return std::make_unique<StateMemory>(model_->begin());
  }
  void read_on(std::span<const eval::Reading> readings, float* hidden,
               eval::Observer* observer = nullptr) const override;
  void logits(const float* hidden, int64_t n, float* out) const override {
    model_->logits(hidden, n, out);
  }
  void parallel(int64_t n, const base::FunctionRef<void(int64_t)>& task) const override {
    model_->pool().run(n, task);
  }
  // What save() writes.
  Snapshot snapshot(const eval::Continuation& from) const;
  void save(const eval::Continuation& from, const std::filesystem::path& path) const override;
  eval::Continuation load(const std::filesystem::path& path) const override;

 private:
  std::unique_ptr<const Model> model_;
  std::function<std::string()> digest_;
};

// `config`: the checkpoint's, where wanted with other sizes of the memories; the rest as Model's.
// Error on a CPU that the kernels are not built for, and RunError, before anything is loaded, where
// the weights and the memories of so many sequences would not fit.
std::unique_ptr<NativeLanguageModel> open_native(
    const std::shared_ptr<const model::Checkpoint>& checkpoint, model::Config config,
    std::optional<WeightType> type, int threads, int64_t sequences = 1);

}  // namespace bmojo::infer
