#include <torch/torch.h>

#include <charconv>
#include <cmath>
#include <memory>
#include <random>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"
#include "bmojo/cli/torch_verbs.h"

namespace bmojo {
namespace {

struct Options {
  Common common;
  std::string model, prompt;
  std::vector<std::string> set;
  int64_t max_tokens = 32, top_k = 0, num_samples = 1;
  double temperature = 1, top_p = 1, min_p = 0;
  bool ignore_eos = false;
};

// What may be drawn: the top_k most likely, of those the fewest whose mass reaches top_p, of those
// the ones at least min_p as likely as the first.
at::Tensor filtered(const at::Tensor& log_p, const Options& options) {
  auto [sorted, order] = at::softmax(log_p / options.temperature, -1).sort(-1, /*descending=*/true);
  auto keep = at::ones_like(sorted, at::kBool);
  if (options.top_k > 0 && options.top_k < keep.size(0)) keep.slice(0, options.top_k).fill_(false);
  if (options.top_p < 1) keep &= sorted.cumsum(0) - sorted < options.top_p;
  keep &= sorted >= options.min_p * sorted[0];
  keep[0] = true;  // the most likely always stays
  return at::zeros_like(sorted).scatter(0, order, sorted * keep);
}

int64_t draw(const at::Tensor& log_p, const Options& options, std::mt19937_64& random) {
  // So near to 0 the division would overflow, and the most likely has all the mass.
  if (options.temperature < 1e-6) return log_p.argmax().item<int64_t>();
  const auto mass = filtered(log_p.to(at::kDouble), options).cumsum(0);
  const double total = mass[-1].item<double>();
  const double point = std::uniform_real_distribution<double>(0, total)(random);
  const auto id = at::searchsorted(mass, point, /*out_int32=*/false, /*right=*/true);
  return std::min(id.item<int64_t>(), log_p.size(0) - 1);
}

struct Sample {
  std::vector<int64_t> ids;
  std::vector<double> logprobs;
  std::string finish = "length";
};

Sample generate(const nn::Model& model, const nn::Output& prompt, const Options& options,
                uint64_t seed) {
  std::mt19937_64 random(seed);
  Sample sample;
  auto hidden = prompt.hidden[0][-1];
  auto state = prompt.state;
  while (std::ssize(sample.ids) < options.max_tokens) {
    const auto log_p = at::log_softmax(model.logits(hidden), -1);
    // Nothing may be drawn from broken weights as if they meant something.
    if (!log_p.isfinite().any().item<bool>() || log_p.isnan().any().item<bool>())
      throw RunError(fmt::format("generate: logits must be finite, got NaN after {} tokens",
                                 sample.ids.size()));
    const int64_t id = draw(log_p, options, random);
    sample.ids.push_back(id);
    sample.logprobs.push_back(log_p[id].item<double>());
    if (id == model.config().eos_token_id && !options.ignore_eos) {
      sample.finish = "eos";
      break;
    }
    if (std::ssize(sample.ids) == options.max_tokens) break;
    auto out = model.forward(torch::tensor({id}, at::kLong).unsqueeze(0), state);
    hidden = out.hidden[0][-1];
    state = std::move(out.state);
  }
  return sample;
}

// The prompt in parts of bounded size: memory does not grow with its length.
nn::Output read_prompt(const nn::Model& model, const std::vector<int64_t>& ids) {
  nn::Output out;
  for (size_t from = 0; from < ids.size(); from += 512) {
    const auto end = std::min(ids.size(), from + 512);
    const std::vector<int64_t> part(ids.begin() + from, ids.begin() + end);
    out = model.forward(torch::tensor(part, at::kLong).unsqueeze(0), out.state);
  }
  return out;
}

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
  for (const double value : {options.temperature, options.top_p, options.min_p})
    require(std::isfinite(value), "generate: --temperature, --top-p and --min-p must be numbers");
  const auto ids = parse_ids(options.prompt);
  use_threads(options.common.threads);
  const auto model = load_model(options.model, options.set);
  check_ids(ids, model.config(), "--ids");
  const auto prompt = read_prompt(model, ids);
  for (int64_t i = 0; i < options.num_samples; ++i) {
    const auto sample =
        generate(model, prompt, options, static_cast<uint64_t>(options.common.seed) + i);
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
  verb->add_option("--max-tokens", options->max_tokens, "Tokens to add")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->option_text("N [32]");
  verb->add_option("--temperature", options->temperature, "0 takes the most likely")
      ->check(CLI::Range(0.0, 1e6))
      ->option_text("T [1]");
  verb->add_option("--top-k", options->top_k, "Draw from the K most likely; 0 = all")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->option_text("K [0]");
  verb->add_option("--top-p", options->top_p, "Draw from the fewest that hold this mass")
      ->check(CLI::Range(0.0, 1.0))
      ->option_text("P [1]");
  verb->add_option("--min-p", options->min_p,
                   "Leave out what is P times less likely than the first")
      ->check(CLI::Range(0.0, 1.0))
      ->option_text("P [0]");
  verb->add_option("--num-samples", options->num_samples, "Continuations, with seeds N, N+1, …")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->option_text("N [1]");
  verb->add_flag("--ignore-eos", options->ignore_eos, "Go on after the end-of-sequence token");
  add_memory_settings(*verb, options->set);
  add_common(*verb, options->common);
  verb->callback([options] { run_verb([&] { run_generate(*options); }); });
}

}  // namespace bmojo
