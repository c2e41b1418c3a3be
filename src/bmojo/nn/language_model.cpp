#include "bmojo/nn/language_model.h"

#include <torch/torch.h>

#include "bmojo/nn/parallel.h"

namespace bmojo::nn {
namespace {

class StateMemory : public eval::Memory {
 public:
  std::unique_ptr<eval::Memory> copy() const override {
    return std::make_unique<StateMemory>(*this);
  }
  int64_t position() const override {
    return state.cursor.position.empty() ? 0 : state.cursor.position[0];
  }

  State state;
};

class TorchLanguageModel : public eval::LanguageModel {
 public:
  explicit TorchLanguageModel(Model model) : model_(std::move(model)) {}

  const Config& config() const override { return model_.config(); }
  std::unique_ptr<eval::Memory> begin() const override { return std::make_unique<StateMemory>(); }

  void forward(std::span<const eval::Reading> readings, float* hidden) const override {
    torch::NoGradGuard no_grad;
    for (const auto& [memory, ids] : readings) {
      if (ids.empty()) continue;
      auto& state = static_cast<StateMemory*>(memory)->state;
      const auto input = at::from_blob(const_cast<int64_t*>(ids.data()),  // only read
                                       {1, std::ssize(ids)}, at::kLong);
      auto out = model_.forward(input, state);
      state = std::move(out.state);
      const auto dense = out.hidden.contiguous();
      std::copy_n(dense.data_ptr<float>(), dense.numel(), hidden);
      hidden += dense.numel();
    }
  }

  void logits(const float* hidden, int64_t n, float* out) const override {
    torch::NoGradGuard no_grad;
    const auto x = at::from_blob(const_cast<float*>(hidden), {n, config().hidden_size}, at::kFloat);
    const auto y = model_.logits(x).contiguous();
    std::copy_n(y.data_ptr<float>(), y.numel(), out);
  }

  void parallel(int64_t n, const FunctionRef<void(int64_t)>& task) const override {
    parallel_for(n, task);
  }

 private:
  Model model_;
};

}  // namespace

std::unique_ptr<eval::LanguageModel> make_language_model(Model model) {
  return std::make_unique<TorchLanguageModel>(std::move(model));
}

}  // namespace bmojo::nn
