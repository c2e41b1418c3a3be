#include "bmojo/infer/language_model.h"

#include <fmt/format.h>

#include <vector>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/memory.h"
#include "bmojo/base/progress.h"
#include "bmojo/eval/prompt.h"
#include "bmojo/infer/snapshot.h"
#include "bmojo/kernels/cpu.h"
#include "bmojo/memory/state_size.h"

namespace bmojo::infer {
namespace {

void require_memory(const model::Checkpoint& checkpoint, const model::Config& config,
                    std::optional<WeightType> type, int64_t sequences) {
  const auto states =
      static_cast<double>(sequences) * static_cast<double>(memory::memory_bytes(config).total());
  const auto weights = static_cast<double>(bytes_to_allocate(checkpoint.tensors, config, type));
  const auto available = static_cast<double>(base::available_memory());
  if (weights + states <= available) return;
  throw base::RunError(fmt::format(
      "{}: weights and memories need {} of memory, got {}; choose {}a smaller model or fewer "
      "sequences",
      base::shown(checkpoint.tensors.folder()), base::si(weights + states, "B"),
      base::si(available, "B"), type == WeightType::bf16 ? "" : "bf16 weights, "));
}

}  // namespace

void NativeLanguageModel::read_on(std::span<const eval::Reading> readings, float* hidden,
                                  eval::Observer* observer) const {
  thread_local std::vector<Input> inputs;
  inputs.clear();
  for (const auto& reading : readings)
    inputs.push_back({&static_cast<StateMemory*>(reading.memory)->state, reading.ids,
                      reading.documents, reading.wanted});
  model_->forward(inputs, hidden, observer);
}

Snapshot NativeLanguageModel::snapshot(const eval::Continuation& from) const {
  return {.origin = {digest_(), model_->type(), config()},
          .state = static_cast<const StateMemory*>(from.memory.get())->state,
          .logits = from.logits,
          .sampler = {.seed = from.seed,
                      .counter = static_cast<uint64_t>(from.memory->position()),
                      .recent = from.recent,
                      .pending_utf8 = from.pending_utf8,
                      .pending_stop = from.pending_stop}};
}

void NativeLanguageModel::save(const eval::Continuation& from,
                               const std::filesystem::path& path) const {
  save_snapshot(snapshot(from), path);
}

eval::Continuation NativeLanguageModel::load(const std::filesystem::path& path) const {
  const Origin own{digest_(), model_->type(), config()};
  auto snapshot = load_snapshot(path, &own);
  eval::remember(snapshot.sampler.recent, {});  // a file may hold more
  return {.memory = std::make_unique<StateMemory>(std::move(snapshot.state)),
          .logits = std::move(snapshot.logits),
          .recent = std::move(snapshot.sampler.recent),
          .seed = snapshot.sampler.seed,
          .pending_utf8 = std::move(snapshot.sampler.pending_utf8),
          .pending_stop = std::move(snapshot.sampler.pending_stop)};
}

std::unique_ptr<NativeLanguageModel> open_native(
    const std::shared_ptr<const model::Checkpoint>& checkpoint, model::Config config,
    std::optional<WeightType> type, int threads, int64_t sequences) {
  kernels::require_simd();
  require_memory(*checkpoint, config, type, sequences);
  auto model = std::make_unique<const Model>(checkpoint->tensors, std::move(config), type, threads);
  // Of the very files that were read: a run's folder may have a newer checkpoint by then.
  return std::make_unique<NativeLanguageModel>(
      std::move(model), [checkpoint] { return model::digest_of(checkpoint->tensors); });
}

}  // namespace bmojo::infer
