#include <memory>
#include <optional>

#include "bmojo/base/error.h"
#include "bmojo/cli/engine.h"
#include "bmojo/infer/language_model.h"
#include "bmojo/kernels/cpu.h"
#include "bmojo/model/checkpoint.h"

namespace bmojo {

std::unique_ptr<eval::LanguageModel> open_model(const EngineChoice& choice, int64_t threads) {
  kernels::require_simd();
  const auto checkpoint = std::make_shared<const Checkpoint>(checkpoint_folder(choice.model));
  auto config = checkpoint->config;
  apply_memory_settings(config, choice.set);
  std::optional<infer::WeightType> type;
  if (!choice.dtype.empty())
    type = choice.dtype == "bf16" ? infer::WeightType::bf16 : infer::WeightType::f32;
  auto model = std::make_unique<infer::Model>(checkpoint->tensors, std::move(config), type,
                                              static_cast<int>(threads));
  // Of the very files that were read: a run's folder may have a newer checkpoint by then.
  return std::make_unique<infer::NativeLanguageModel>(
      std::move(model), [checkpoint] { return digest_of(checkpoint->tensors); });
}

// bmojo hands `explain --realization` to bmojo-torch before it comes to this.
Json explain_realization(const EngineChoice&, const Batch&) {
  fail("explain: --realization needs --engine torch, got native");
}
void print_realization(const Json&) {}

void run_verb(const std::function<void()>& verb) {
  cap_instruction_set();
  verb();
}

}  // namespace bmojo
