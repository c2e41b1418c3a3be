// `bmojo`: what needs no torch runs here; the other verbs run in `bmojo-torch` beside it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "bmojo/base/error.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/cli/engine.h"
#include "bmojo/cli/verbs.h"

namespace bmojo::cli {
namespace {
namespace fs = std::filesystem;
using namespace std::string_view_literals;

struct TorchVerb {
  std::string_view name, description;
};
constexpr std::array kTorchVerbs = {
    TorchVerb{"train", "Train a model on text or on a task, and resume"},
};

void list_torch_verbs(CLI::App& app) {
  std::string text = "Verbs run by bmojo-torch, beside bmojo:\n";
  for (const auto& verb : kTorchVerbs)
    text += fmt::format("  {:<24}{}\n", verb.name, verb.description);
  app.footer(text + "\nbmojo VERB --help shows a verb's flags.");
}

// `--engine torch`, in one word or two, `bench --train` and `explain --realization`.
bool wants_torch(std::span<char*> arguments) {
  constexpr std::array kVerbs = {"score"sv, "generate"sv, "eval"sv, "explain"sv, "bench"sv};
  if (arguments.empty()) return false;
  const std::string_view verb = arguments[0];
  if (std::ranges::find(kVerbs, verb) == kVerbs.end()) return false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    if (verb == "bench" && word == "--train") return true;
    if (verb == "bench") continue;  // reading and writing are timed here alone
    if (verb == "explain" && word == "--realization") return true;
    if (word == "--engine=torch") return true;
    if (word == "--engine" && i + 1 < arguments.size() && arguments[i + 1] == "torch"sv)
      return true;
  }
  return false;
}

void run_torch(char** argv) {
  const auto program = fs::read_symlink("/proc/self/exe").parent_path() / "bmojo-torch";
  base::require(fs::exists(program),
                "{}: needs bmojo-torch beside bmojo, got none at {}; build with torch", argv[1],
                program.string());
  ::execv(program.c_str(), argv);
  throw base::RunError(
      fmt::format("{}: cannot be run: {}", program.string(), std::strerror(errno)));
}

int run_bmojo(int argc, char** argv) {
  Elsewhere torch{.verbs = {}, .takes = wants_torch, .run = run_torch};
  for (const auto& verb : kTorchVerbs) torch.verbs.emplace_back(verb.name);
  return run(argc, argv, "bmojo",
             {add_config_verb, add_init_verb, add_inspect_verb, add_import_verb, add_export_verb,
              add_tokenize_verb, add_task_verb, add_score_verb, add_eval_verb, add_generate_verb,
              add_chat_verb, add_bench_verb, add_explain_verb, add_sweep_verb, add_plot_verb,
              list_torch_verbs},
             torch);
}

}  // namespace
}  // namespace bmojo::cli

int main(int argc, char** argv) { return bmojo::cli::run_bmojo(argc, argv); }
