#include "bmojo/infer/language_model.h"

#include <vector>

#include "bmojo/infer/snapshot.h"

namespace bmojo::infer {

void NativeLanguageModel::forward(std::span<const eval::Reading> readings, float* hidden,
                                  eval::Observer* observer) const {
  thread_local std::vector<Input> inputs;
  inputs.clear();
  for (const auto& reading : readings)
    inputs.push_back({&static_cast<StateMemory*>(reading.memory)->state, reading.ids,
                      reading.documents, reading.wanted});
  model_->forward(inputs, hidden, observer);
}

void NativeLanguageModel::save(const eval::Continuation& from,
                               const std::filesystem::path& path) const {
  save_snapshot({.origin = {digest_(), model_->type(), config()},
                 .state = static_cast<const StateMemory*>(from.memory.get())->state,
                 .logits = from.logits,
                 .sampler = {.seed = from.seed,
                             .counter = static_cast<uint64_t>(from.memory->position()),
                             .recent = from.recent,
                             .pending_utf8 = from.pending_utf8,
                             .pending_stop = from.pending_stop}},
                path);
}

eval::Continuation NativeLanguageModel::load(const std::filesystem::path& path) const {
  const Origin own{digest_(), model_->type(), config()};
  auto snapshot = load_snapshot(path, &own);
  return {.memory = std::make_unique<StateMemory>(std::move(snapshot.state)),
          .logits = std::move(snapshot.logits),
          .recent = std::move(snapshot.sampler.recent),
          .seed = snapshot.sampler.seed,
          .pending_utf8 = std::move(snapshot.sampler.pending_utf8),
          .pending_stop = std::move(snapshot.sampler.pending_stop)};
}

}  // namespace bmojo::infer
