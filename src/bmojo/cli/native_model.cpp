#include <memory>

#include "bmojo/base/error.h"
#include "bmojo/cli/engine.h"
#include "bmojo/infer/language_model.h"
#include "bmojo/model/checkpoint.h"

namespace bmojo {
std::unique_ptr<eval::LanguageModel> open_model(const EngineChoice& choice, int64_t threads) {
  const auto checkpoint = std::make_shared<const Checkpoint>(checkpoint_folder(choice.model),
                                                             Checkpoint::Packed::allowed);
  auto config = checkpoint->config;
  apply_memory_settings(config, choice.set);
  return infer::open_native(checkpoint, std::move(config), kernels::weight_type_of(choice.dtype),
                            static_cast<int>(threads), choice.sequences);
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
