#include <torch/torch.h>

#include <charconv>
#include <cmath>
#include <memory>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"
#include "bmojo/cli/torch_verbs.h"
#include "bmojo/nn/sample.h"

namespace bmojo {
namespace {

struct Options {
  Common common;
  std::string model, prompt;
  std::vector<std::string> set;
  nn::SampleOptions sampling;
  int64_t num_samples = 1;
};

// "1,2,3": every part a whole number.
std::vector<int64_t> parse_ids(std::string_view text) {
  std::vector<int64_t> ids;
  for (const char *at = text.data(), *end = at + text.size();; ++at) {
    int64_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    require(error == std::errc() && (next == end || *next == ','),
            "--ids: must be whole numbers like 1,2,3, got {}", in_quotes(text));
    ids.push_back(id);
    if (next == end) return ids;
    at = next;
  }
}

void run_generate(const Options& options) {
  torch::NoGradGuard no_grad;
  for (const double value :
       {options.sampling.temperature, options.sampling.top_p, options.sampling.min_p})
    require(std::isfinite(value), "generate: --temperature, --top-p and --min-p must be numbers");
  const auto ids = parse_ids(options.prompt);
  use_threads(options.common.threads);
  const auto model = load_model(options.model, options.set);
  check_ids(ids, model.config(), "--ids");
  const auto prompt = nn::read_prompt(model, ids);
  for (int64_t i = 0; i < options.num_samples; ++i) {
    const auto sample =
        nn::sample(model, prompt, options.sampling, static_cast<uint64_t>(options.common.seed) + i);
    if (options.common.json)
      print_json({{"text", nullptr},
                  {"ids", sample.ids},
                  {"logprobs", sample.logprobs},
                  {"finish", sample.finish},
                  {"prompt_tokens", ids.size()},
                  {"reprocessed_tokens", 0}});
    else
      fmt::print("{}\n", fmt::join(sample.ids, " "));
  }
}

}  // namespace

void add_generate_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("generate", "Continue a prompt of token ids");
  verb->add_option("--model", options->model, "Checkpoint folder")->option_text("DIR")->required();
  verb->add_option("--ids", options->prompt, "The prompt")->option_text("1,2,3")->required();
  verb->add_option("--max-tokens", options->sampling.max_tokens, "Tokens to add")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->option_text("N [32]");
  verb->add_option("--temperature", options->sampling.temperature, "0 takes the most likely")
      ->check(CLI::Range(0.0, 1e6))
      ->option_text("T [1]");
  verb->add_option("--top-k", options->sampling.top_k, "Draw from the K most likely; 0 = all")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->option_text("K [0]");
  verb->add_option("--top-p", options->sampling.top_p, "Draw from the fewest that hold this mass")
      ->check(CLI::Range(0.0, 1.0))
      ->option_text("P [1]");
  verb->add_option("--min-p", options->sampling.min_p,
                   "Leave out what is P times less likely than the first")
      ->check(CLI::Range(0.0, 1.0))
      ->option_text("P [0]");
  verb->add_option("--num-samples", options->num_samples, "Continuations, with seeds N, N+1, ...")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->option_text("N [1]");
  verb->add_flag("--ignore-eos", options->sampling.ignore_eos,
                 "Go on after the end-of-sequence token");
  add_memory_settings(*verb, options->set);
  add_common(*verb, options->common);
  verb->callback([options] { run_verb([&] { run_generate(*options); }); });
}

}  // namespace bmojo
