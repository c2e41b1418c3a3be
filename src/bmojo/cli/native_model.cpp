#include <fmt/format.h>

#include <memory>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/memory.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/engine.h"
#include "bmojo/infer/language_model.h"
#include "bmojo/kernels/cpu.h"
#include "bmojo/memory/state_size.h"
#include "bmojo/model/checkpoint.h"

namespace bmojo {
namespace {

void require_memory(const Checkpoint& checkpoint, const Config& config,
                    const EngineChoice& choice) {
  const double states =
      static_cast<double>(choice.sequences) * static_cast<double>(memory_bytes(config).total());
  const double weights = static_cast<double>(
      infer::bytes_to_allocate(checkpoint.tensors, config, kernels::weight_type_of(choice.dtype)));
  const auto available = static_cast<double>(available_memory());
  if (weights + states <= available) return;
  throw RunError(fmt::format(
      "{}: weights and memories need {} of memory, got {}; choose {}a smaller model or fewer "
      "sequences",
      shown(choice.model), si(weights + states, "B"), si(available, "B"),
      choice.dtype == "bf16" ? "" : "--dtype bf16, "));
}

}  // namespace

std::unique_ptr<eval::LanguageModel> open_model(const EngineChoice& choice, int64_t threads) {
  kernels::require_simd();
  const auto checkpoint = std::make_shared<const Checkpoint>(checkpoint_folder(choice.model),
                                                             Checkpoint::Packed::allowed);
  auto config = checkpoint->config;
  apply_memory_settings(config, choice.set);
  require_memory(*checkpoint, config, choice);
  return infer::open_native(checkpoint, std::move(config), kernels::weight_type_of(choice.dtype),
                            static_cast<int>(threads));
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
