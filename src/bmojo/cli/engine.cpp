#include "bmojo/cli/engine.h"

#include <charconv>
#include <cstdlib>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"
#include "bmojo/kernels/cpu.h"

namespace bmojo::cli {

void add_engine_flags(CLI::App& verb, EngineChoice& choice) {
  verb.add_option("--model", choice.model, "Checkpoint folder, or a run's")
      ->option_text("DIR")
      ->required();
  verb.add_option("--engine", choice.engine, "native (without torch), or torch")
      ->check(CLI::IsMember({"native", "torch"}))
      ->option_text("NAME [native]");
  verb.add_option("--dtype", choice.dtype, "f32 or bf16 weights; the file's own by default")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->option_text("TYPE");
  add_memory_settings(verb, choice.set);
}

void cap_instruction_set() {
  if (const char* name = std::getenv("BMOJO_SIMD")) kernels::cap_target(name);
}

void check_ids(const std::vector<int64_t>& ids, const model::Config& config,
               const std::string& subject) {
  base::require(!ids.empty(), "{}: ids must hold at least one id, got none", subject);
  for (const auto id : ids)
    base::require(id >= 0 && id < config.vocab_size, "{}: ids must be from 0 to {}, got {}",
                  subject, config.vocab_size - 1, id);
}

std::vector<int64_t> parse_ids(std::string_view text) {
  std::vector<int64_t> ids;
  for (const char *at = text.data(), *end = at + text.size();; ++at) {
    int64_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    base::require(error == std::errc() && (next == end || *next == ','),
                  "--ids: must be whole numbers like 1,2,3, got {}", base::in_quotes(text));
    ids.push_back(id);
    if (next == end) return ids;
    at = next;
  }
}

void require_vocabulary(const data::Task& task, const model::Config& config) {
  base::require(task.vocab_size == config.vocab_size,
                "--task: vocabulary must be the model's = {}, got {}", config.vocab_size,
                task.vocab_size);
}

}  // namespace bmojo::cli
