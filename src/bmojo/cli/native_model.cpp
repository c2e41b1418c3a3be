#include "bmojo/cli/native_model.h"

#include <memory>

#include "bmojo/base/error.h"
#include "bmojo/model/checkpoint.h"

namespace bmojo::cli {

std::unique_ptr<infer::NativeLanguageModel> open_native_model(const EngineChoice& choice,
                                                              int64_t threads) {
  const auto checkpoint = std::make_shared<const model::Checkpoint>(
      model::checkpoint_folder(choice.model), model::Checkpoint::Packed::allowed);
  auto config = checkpoint->config;
  model::apply_memory_settings(config, choice.set);
  return infer::open_native(checkpoint, std::move(config), kernels::weight_type_of(choice.dtype),
                            static_cast<int>(threads), choice.sequences);
}

std::unique_ptr<eval::LanguageModel> open_model(const EngineChoice& choice, int64_t threads) {
  return open_native_model(choice, threads);
}

// bmojo hands `explain --realization` to bmojo-torch before it comes to this.
base::Json explain_realization(const EngineChoice&, const data::Batch&) {
  base::fail("explain: --realization needs --engine torch, got native");
}
void print_realization(const base::Json&) {}

void run_verb(const std::function<void()>& verb) {
  cap_instruction_set();
  verb();
}

}  // namespace bmojo::cli
