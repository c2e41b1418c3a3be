#include <memory>
#include <optional>

#include "bmojo/cli/engine.h"
#include "bmojo/infer/language_model.h"
#include "bmojo/model/checkpoint.h"

namespace bmojo {

std::unique_ptr<eval::LanguageModel> open_model(const EngineChoice& choice, int64_t threads) {
  const auto checkpoint = std::make_shared<const Checkpoint>(checkpoint_folder(choice.model));
  auto config = checkpoint->config;
  apply_memory_settings(config, choice.set);
  std::optional<infer::WeightType> type;
  if (!choice.dtype.empty())
    type = choice.dtype == "bf16" ? infer::WeightType::bf16 : infer::WeightType::f32;
  return infer::open_native(checkpoint, std::move(config), type, static_cast<int>(threads));
}

void run_verb(const std::function<void()>& verb) {
  cap_instruction_set();
  verb();
}

}  // namespace bmojo
