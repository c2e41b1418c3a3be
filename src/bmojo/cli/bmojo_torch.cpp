#include <limits.h>
#include <malloc.h>
#include <stdlib.h>
#include <torch/torch.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "bmojo/base/error.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/torch_verbs.h"
#include "bmojo/nn/language_model.h"

namespace bmojo::cli {

nn::Model load_model(const std::string& folder, const std::vector<std::string>& settings) {
  const model::Checkpoint checkpoint(model::checkpoint_folder(folder));
  auto config = checkpoint.config;
  model::apply_memory_settings(config, settings);
  return nn::Model(config, nn::load_parameters(checkpoint));
}

std::unique_ptr<eval::LanguageModel> open_model(const EngineChoice& choice, int64_t threads) {
  base::require(choice.dtype != "bf16", "--dtype: must be f32 with --engine torch, got bf16");
  use_threads(threads);
  return nn::make_language_model(load_model(choice.model, choice.set));
}

void use_threads(int64_t threads) {
  if (threads > 0) at::set_num_threads(static_cast<int>(threads));
}

void run_verb(const std::function<void()>& verb) {
  try {
    cap_instruction_set();
    verb();
  } catch (const c10::Error& error) {
    // Without torch's stack trace, which names this machine's paths.
    const std::string message = error.what_without_backtrace();
    if (message.find("allocate") != std::string::npos) throw std::bad_alloc();
    throw base::RunError(message.substr(0, message.find('\n')));
  }
}

namespace {

// MKL ends the program in its own words, before main(), where the current folder is gone.
void check_current_folder_first() {
  std::array<char, PATH_MAX> path{};
  if (getcwd(path.data(), path.size()) != nullptr || errno != ENOENT) return;
  base::print_stderr(std::string("bmojo: ") + kNoCurrentFolder + "\n");
  _exit(2);
}
// Runs ahead of what every library runs as it is loaded.
__attribute__((section(".preinit_array"),
               used)) void (*const kFirst)() = check_current_folder_first;

int run_bmojo_torch(int argc, char** argv) {
  // Some machines list AMX and fail on its first instruction: oneDNN's bf16 products stay below it.
  setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", /*overwrite=*/0);
  // Activations come and go with every step: freed memory is kept for the next one, instead of
  // being given back to the system and faulted in again.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, -1);
  return run(argc, argv, "bmojo",
             {add_train_verb, add_eval_verb, add_score_verb, add_generate_verb, add_bench_verb,
              add_explain_verb});
}

}  // namespace
}  // namespace bmojo::cli

int main(int argc, char** argv) { return bmojo::cli::run_bmojo_torch(argc, argv); }
