#include <torch/torch.h>

#include <memory>

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

void run_generate(const Options& options) {
  torch::NoGradGuard no_grad;
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
  add_number(*verb, {"--max-tokens", "Tokens to add", 1, int64_t{1} << 40, "N [32]"},
             options->sampling.max_tokens);
  add_number(*verb, {"--temperature", "0 takes the most likely", 0.0, 1e6, "T [1]"},
             options->sampling.temperature);
  add_number(*verb,
             {"--top-k", "Draw from the K most likely; 0 = all", 0, int64_t{1} << 40, "K [0]"},
             options->sampling.top_k);
  add_number(*verb, {"--top-p", "Draw from the fewest that hold this mass", 0.0, 1.0, "P [1]"},
             options->sampling.top_p);
  add_number(*verb,
             {"--min-p", "Leave out what is P times less likely than the first", 0.0, 1.0, "P [0]"},
             options->sampling.min_p);
  add_number(
      *verb,
      {"--num-samples", "Continuations, with seeds N, N+1, ...", 1, int64_t{1} << 40, "N [1]"},
      options->num_samples);
  verb->add_flag("--ignore-eos", options->sampling.ignore_eos,
                 "Go on after the end-of-sequence token");
  add_memory_settings(*verb, options->set);
  add_common(*verb, options->common);
  verb->callback([options] { run_verb([&] { run_generate(*options); }); });
}

}  // namespace bmojo
