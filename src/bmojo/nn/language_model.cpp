#include "bmojo/nn/language_model.h"

#include <torch/torch.h>

#include <algorithm>

#include "bmojo/nn/attention_weights.h"
#include "bmojo/nn/ops/parallel.h"

namespace bmojo::nn {
namespace {

// A sequence of a batch that is read together.
class StateMemory : public eval::Memory {
 public:
  std::unique_ptr<eval::Memory> copy() const override {
    return std::make_unique<StateMemory>(*this);
  }
  int64_t position() const override {
    return batch ? batch->cursor.position[static_cast<size_t>(sequence)] : 0;
  }
  // The sequence as a batch of its own.
  State alone() const {
    if (!batch) return {};
    const auto b = static_cast<size_t>(sequence);
    State out{.cursor = {{batch->cursor.position[b]}, {batch->cursor.document[b]}},
              .layers = batch->layers};
    const auto take = [&](const char*, at::Tensor& x) {
      if (x.defined()) x = x.narrow(0, sequence, 1);
    };
    for (auto& layer : out.layers) LayerState::visit(layer, take, take);
    return out;
  }

  std::shared_ptr<const State> batch;  // null: nothing was read yet
  int64_t sequence = 0;
};

StateMemory& memory_of(const eval::Reading& reading) {
  return *static_cast<StateMemory*>(reading.memory);
}

// Whether the readings are all the sequences of one batch, in its order, or the first of one.
bool are_one_batch(std::span<const eval::Reading> readings) {
  const auto& first = memory_of(readings[0]);
  const auto size = std::ssize(readings);
  if (first.batch && std::ssize(first.batch->cursor.position) != size) return false;
  for (int64_t i = 0; i < size; ++i) {
    const auto& reading = readings[static_cast<size_t>(i)];
    const auto& memory = memory_of(reading);
    if (memory.batch != first.batch || (memory.batch && memory.sequence != i) ||
        reading.ids.size() != readings[0].ids.size() ||
        reading.documents.size() != readings[0].documents.size() ||
        (reading.wanted == nullptr) != (readings[0].wanted == nullptr))
      return false;
  }
  return true;
}

// Places that hold nothing are left out.
std::vector<int64_t> members(const at::Tensor& positions) {
  const auto copy = positions.contiguous();
  std::vector<int64_t> out(copy.data_ptr<int64_t>(), copy.data_ptr<int64_t>() + copy.numel());
  std::erase(out, kNowhere);
  return out;
}

// Sequence b of the call is reading `number + b`.
void tell_pieces(const Output& out, int64_t number, int64_t window, eval::Observer& observer) {
  for (size_t layer = 0; layer < out.innovations.size(); ++layer) {
    if (!out.innovations[layer].defined()) continue;
    const auto innovation = out.innovations[layer].to(at::kFloat).contiguous();
    for (size_t i = 0; i < out.layout->pieces.size(); ++i) {
      const auto& piece = out.layout->pieces[i];
      const auto at = static_cast<int64_t>(i);
      const auto seen = members(out.visible[layer][at]), kept = members(out.selections[layer][at]);
      const float* epsilon =
          innovation.data_ptr<float>() + piece.sequence * innovation.size(1) + piece.column;
      observer.on_piece({.layer = static_cast<int64_t>(layer),
                         .first = {number + piece.sequence, piece.column, piece.position},
                         .innovation = {epsilon, static_cast<size_t>(piece.count)},
                         .seen = seen,
                         .kept = kept,
                         .ends_chunk = memory::begins_chunk(piece.position + piece.count, window)});
    }
  }
}

void tell_attention(const Output& out, int64_t number, eval::Observer& observer) {
  const auto& layout = *out.layout;
  for (size_t layer = 0; layer < out.attentions.size(); ++layer) {
    const auto& kept = out.attentions[layer];
    if (!kept.q.defined()) continue;
    for (int64_t b = 0; b < layout.batch; ++b)
      for (int64_t t = 0; t < layout.length; ++t) {
        if (!observer.asks_attention(number + b, t)) continue;
        const auto told = attention_weights(kept, layout, b, t);
        const auto weight = told.weight.to(at::kDouble).contiguous();
        const auto position = layout.token_position[static_cast<size_t>(b * layout.length + t)];
        observer.on_attention(
            {.layer = static_cast<int64_t>(layer),
             .num_heads = weight.size(0),
             .query = {number + b, t, position},
             .keys = told.keys,
             .weight = {weight.data_ptr<double>(), static_cast<size_t>(weight.numel())}});
      }
  }
}

class TorchLanguageModel : public eval::LanguageModel {
 public:
  explicit TorchLanguageModel(Model model) : model_(std::move(model)) {}

  const model::Config& config() const override { return model_.config(); }
  std::unique_ptr<eval::Memory> begin() const override { return std::make_unique<StateMemory>(); }

  void read_on(std::span<const eval::Reading> readings, float* hidden,
               eval::Observer* observer) const override {
    torch::NoGradGuard no_grad;
    const bool together = readings.size() > 1 && are_one_batch(readings);
    const size_t size = together ? readings.size() : 1;
    for (size_t i = 0; i < readings.size(); i += size) {
      const auto some = readings.subspan(i, size);
      if (!some[0].ids.empty()) hidden = read(some, static_cast<int64_t>(i), hidden, observer);
    }
  }

  void logits(const float* hidden, int64_t n, float* out) const override {
    torch::NoGradGuard no_grad;
    const auto x = at::from_blob(const_cast<float*>(hidden), {n, config().hidden_size}, at::kFloat);
    const auto y = model_.logits(x).contiguous();
    std::copy_n(y.data_ptr<float>(), y.numel(), out);
  }

  void parallel(int64_t n, const base::FunctionRef<void(int64_t)>& task) const override {
    parallel_for(n, task);
  }

 private:
  // One batch, whose first sequence is reading `number`; where its hidden states end.
  float* read(std::span<const eval::Reading> readings, int64_t number, float* hidden,
              eval::Observer* observer) const {
    CallOptions call;
    call.keep_attention = observer != nullptr && observer->asks_attention();
    std::vector<int64_t> ids;
    for (const auto& reading : readings) {
      ids.insert(ids.end(), reading.ids.begin(), reading.ids.end());
      call.documents.insert(call.documents.end(), reading.documents.begin(),
                            reading.documents.end());
      if (reading.wanted != nullptr) call.wanted.push_back(*reading.wanted);
    }
    const auto input =
        at::from_blob(ids.data(), {std::ssize(readings), std::ssize(readings[0].ids)}, at::kLong);
    const auto& first = memory_of(readings[0]);
    auto out = readings.size() > 1 && first.batch ? model_.forward(input, *first.batch, call)
                                                  : model_.forward(input, first.alone(), call);
    if (observer != nullptr) {
      tell_pieces(out, number, memory::window_of(model_.config().window), *observer);
      tell_attention(out, number, *observer);
    }
    const auto batch = std::make_shared<const State>(std::move(out.state));
    for (size_t i = 0; i < readings.size(); ++i) {
      memory_of(readings[i]).batch = batch;
      memory_of(readings[i]).sequence = static_cast<int64_t>(i);
    }
    const auto dense = out.hidden.contiguous();
    return std::copy_n(dense.data_ptr<float>(), dense.numel(), hidden);
  }

  Model model_;
};

}  // namespace

std::unique_ptr<eval::LanguageModel> make_language_model(Model model) {
  return std::make_unique<TorchLanguageModel>(std::move(model));
}

}  // namespace bmojo::nn
