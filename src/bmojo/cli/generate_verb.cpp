#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <iterator>
#include <memory>
#include <utility>

#include "bmojo/base/error.h"
#include "bmojo/base/input.h"
#include "bmojo/base/memory.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/engine.h"
#include "bmojo/data/unicode.h"
#include "bmojo/eval/generate.h"
#include "bmojo/eval/prompt.h"
#include "bmojo/model/checkpoint.h"

namespace bmojo::cli {
namespace {

struct Options {
  Common common;
  EngineChoice choice;
  std::optional<std::string> prompt, ids;
  std::string prompt_file, tokenizer, state_in, state_out;
  bool has_seed = false;
  eval::GenerateOptions how;
  int64_t num_samples = 1;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string read_all(const std::string& path) {
  if (path != "-") return base::read_text(path);
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  if (std::cin.bad()) throw base::RunError("stdin: reading failed");
  return text;
}

int num_prompts(const Options& options) {
  return static_cast<int>(options.prompt.has_value()) +
         static_cast<int>(!options.prompt_file.empty()) + static_cast<int>(options.ids.has_value());
}

struct Prompt {
  std::vector<int64_t> ids;
  bool is_text = false;
};

Prompt prompt_of(const Options& options, const model::Config& config,
                 const data::Tokenizer* tokenizer) {
  if (num_prompts(options) == 0) return {{}, tokenizer != nullptr};
  if (options.ids) {
    const auto ids = parse_ids(*options.ids);
    check_ids(ids, config, "--ids");
    return {ids, false};
  }
  const auto* flag = options.prompt ? "--prompt" : "--prompt-file";
  const auto text = options.prompt ? *options.prompt : read_all(options.prompt_file);
  base::require(tokenizer != nullptr,
                "{}: needs a tokenizer, got none in the model's folder; give --tokenizer or --ids",
                flag);
  const auto ids = options.state_in.empty() ? eval::prompt_ids(config, *tokenizer, text, flag)
                                            : eval::further_ids(*tokenizer, text, flag);
  check_ids(ids, config, flag);
  return {ids, true};
}

base::Json to_json(const eval::Generated& sample, bool with_text, size_t num_prompt,
                   int64_t num_reprocessed) {
  base::Json json = {
      {"text", with_text ? base::Json(data::replace_utf8_faults(sample.text)) : base::Json()},
      {"ids", sample.ids},
      {"logprobs", sample.logprobs},
      {"finish", sample.finish},
      {"prompt_tokens", num_prompt},
      {"reprocessed_tokens", num_reprocessed}};
  if (sample.alternatives.empty()) return json;
  for (const auto& alternatives : sample.alternatives) {
    base::Json row = base::Json::array();
    for (const auto& [id, logprob] : alternatives)
      row.push_back({{"id", id}, {"logprob", logprob}});
    json["top_logprobs"].push_back(row);
  }
  return json;
}

// Text as it comes, for people who watch: no model may move their cursor.
void show(std::string_view text) {
  std::string shown(text);
  for (auto& c : shown)
    if (static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t') c = '?';
  fmt::print("{}", shown);
  std::fflush(stdout);
}

void check(const Options& options) {
  const int given = num_prompts(options);
  base::require(given == 1 || (given == 0 && !options.state_in.empty()),
                "generate: --prompt, --prompt-file or --ids is needed, got {}",
                given == 0 ? "none" : "more than one");
  base::require(options.state_out.empty() || options.num_samples == 1,
                "--state-out: keeps one continuation, got --num-samples {}", options.num_samples);
  base::require(
      options.choice.engine == "native" || (options.state_in.empty() && options.state_out.empty()),
      "{}: needs --engine native, got {}", options.state_out.empty() ? "--state-in" : "--state-out",
      options.choice.engine);
}

std::unique_ptr<data::Tokenizer> tokenizer_for(const Options& options,
                                               const model::Config& config) {
  const bool is_own = options.tokenizer.empty();
  auto tokenizer =
      is_own ? data::tokenizer_of(model::checkpoint_folder(options.choice.model), config.vocab_size)
             : data::load_tokenizer(options.tokenizer);
  base::require(tokenizer == nullptr || tokenizer->vocab_size() <= config.vocab_size,
                "{}: vocabulary must be at most the model's = {}, got {}",
                is_own ? "the model's tokenizer" : "--tokenizer", config.vocab_size,
                tokenizer == nullptr ? 0 : tokenizer->vocab_size());
  base::require(options.how.stop.empty() || tokenizer != nullptr,
                "--stop: needs a tokenizer, got none in the model's folder; give --tokenizer");
  return tokenizer;
}

void run_generate(const Options& options) {
  check(options);
  const auto model = open_model(options.choice, options.common.threads);
  const auto tokenizer = tokenizer_for(options, model->config());
  const auto prompt = prompt_of(options, model->config(), tokenizer.get());
  defer_interrupts();
  const auto start = std::chrono::steady_clock::now();
  auto read = options.state_in.empty() ? eval::begin(*model) : model->load(options.state_in);
  // A saved text goes on with its own draws unless other ones are asked for.
  if (options.state_in.empty() || options.has_seed)
    read.seed = static_cast<uint64_t>(options.common.seed);
  const uint64_t seed = read.seed;
  eval::read_prompt(*model, prompt.ids, read, check_interrupted);
  const int64_t num_twice = model->num_read() - std::ssize(prompt.ids),
                num_before = read.memory->position();
  const double prefill = seconds_since(start);
  const auto decode_start = std::chrono::steady_clock::now();
  size_t written = 0;
  auto how = options.how;
  how.goes_on = !options.state_out.empty();
  how.is_stopped = [] { return interrupted_by() != 0; };
  const bool streams = prompt.is_text && !options.common.json && ::isatty(STDOUT_FILENO) == 1;
  for (int64_t i = 0; i < options.num_samples; ++i) {
    // The last one takes what was read: a copy costs as much as the memories are large.
    auto from = i + 1 < options.num_samples ? read.copy() : std::exchange(read, {});
    from.seed = seed + static_cast<uint64_t>(i);
    const int64_t num_read = model->num_read();
    const auto sample =
        eval::generate(*model, from, how, tokenizer.get(), streams ? show : nullptr);
    written += sample.ids.size();
    if (options.common.json)
      print_json(to_json(
          sample, tokenizer != nullptr, prompt.ids.size(),
          num_twice + model->num_read() - num_read - (from.memory->position() - num_before)));
    else if (!prompt.is_text)
      fmt::print("{}\n", fmt::join(sample.ids, " "));
    else
      fmt::print("{}\n", streams ? "" : sample.text);
    std::fflush(stdout);
    if (!options.state_out.empty()) model->save(from, options.state_out);
    check_interrupted();
  }
  if (options.common.quiet || !base::is_live_terminal()) return;
  base::print_stderr(fmt::format(
      "{} tokens read at {:.0f} a second, {} written at {:.1f} a second, {} of memory\n",
      prompt.ids.size(), static_cast<double>(prompt.ids.size()) / prefill, written,
      static_cast<double>(written) / seconds_since(decode_start),
      base::si(static_cast<double>(base::process_memory("VmHWM")), "B")));
}

void add_sampling_flags(CLI::App& verb, Options& options) {
  auto& sampling = options.how.sampling;
  add_number(verb,
             {"--temperature", "0 takes the most likely", 0.0, kernels::kMaxTemperature, "T [1]"},
             sampling.temperature);
  add_number(verb,
             {"--top-k", "Draw from the K most likely; 0 = all", 0, kernels::kMaxTopK, "K [0]"},
             sampling.top_k);
  add_number(verb, {"--top-p", "Draw from the fewest that hold this mass", 0.0, 1.0, "P [1]"},
             sampling.top_p);
  add_number(verb, {"--min-p", "Leave out what is below P times the likeliest", 0.0, 1.0, "P [0]"},
             sampling.min_p);
  add_number(verb,
             {"--repetition-penalty", "Above 1: the last 64 tokens are less likely",
              kernels::kLeastPenalty, kernels::kMaxPenalty, "R [1]"},
             sampling.repetition_penalty);
}

}  // namespace

void add_generate_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("generate", "Continue a prompt");
  add_engine_flags(*verb, options->choice);
  const auto text = [&](const char* name, std::optional<std::string>& to, const char* help) {
    // An empty text is given, too.
    const auto set = [&to](const std::string& given) { to = given; };
    return verb->add_option_function<std::string>(name, set, help);
  };
  text("--prompt", options->prompt, "The prompt")->option_text("TEXT");
  verb->add_option("--prompt-file", options->prompt_file,
                   "A file with the prompt; - reads standard input")
      ->option_text("FILE");
  text("--ids", options->ids, "The prompt as token ids; ids are printed")->option_text("1,2,3");
  verb->add_option("--tokenizer", options->tokenizer, "bytes or a file; the model's own by default")
      ->option_text("NAME");
  verb->add_option("--state-in", options->state_in, "Go on from a saved state; nothing is reread")
      ->option_text("FILE");
  verb->add_option("--state-out", options->state_out, "Save the state after the last token")
      ->option_text("FILE");
  add_number(*verb, {"--max-tokens", "Tokens to add", 1, eval::kMaxTokens, "N [32]"},
             options->how.max_tokens);
  add_sampling_flags(*verb, *options);
  verb->add_option("--stop", options->how.stop, "Stop before this text; may be repeated")
      ->option_text("TEXT")
      ->allow_extra_args(false)
      ->check([](const std::string& text) {
        return text.empty() ? std::string("must not be empty") : std::string();
      });
  add_number(
      *verb,
      {"--num-samples", "Continuations, with seeds N, N+1, ...", 1, int64_t{1} << 40, "N [1]"},
      options->num_samples);
  add_number(*verb,
             {"--logprobs", "With --json: the N likeliest tokens of each place", 0,
              eval::kMaxLogprobs, "N [0]"},
             options->how.num_logprobs);
  verb->add_flag("--ignore-eos", options->how.ignore_eos, "Go on after the end-of-sequence token");
  add_common(*verb, options->common);
  verb->callback([options, verb] {
    options->has_seed = verb->get_option("--seed")->count() > 0;
    run_verb([&] { run_generate(*options); });
  });
}

}  // namespace bmojo::cli
