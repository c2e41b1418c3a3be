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
#include "bmojo/cli/writing.h"
#include "bmojo/eval/generate.h"
#include "bmojo/eval/prompt.h"

namespace bmojo::cli {
namespace {

struct Options {
  Common common;
  EngineChoice choice;
  std::optional<std::string> prompt, ids;
  std::string prompt_file;
  Writing writing;
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
  const auto ids = options.writing.state_in.empty()
                       ? eval::prompt_ids(config, *tokenizer, text, flag)
                       : eval::further_ids(*tokenizer, text, flag);
  check_ids(ids, config, flag);
  return {ids, true};
}

void check(const Options& options) {
  const int given = num_prompts(options);
  base::require(given == 1 || (given == 0 && !options.writing.state_in.empty()),
                "generate: --prompt, --prompt-file or --ids is needed, got {}",
                given == 0 ? "none" : "more than one");
  base::require(options.writing.state_out.empty() || options.num_samples == 1,
                "--state-out: keeps one continuation, got --num-samples {}", options.num_samples);
  const auto& writing = options.writing;
  base::require(
      options.choice.engine == "native" || (writing.state_in.empty() && writing.state_out.empty()),
      "{}: needs --engine native, got {}", writing.state_out.empty() ? "--state-in" : "--state-out",
      options.choice.engine);
}

// Interrupted while it reads `size` tokens: what was read is saved, if anywhere.
void stop_in_prompt(const eval::LanguageModel& model, const eval::Continuation& from, int64_t count,
                    size_t size, const std::string& file) {
  if (!file.empty()) {
    model.save(from, file);
    if (size > 0)
      base::print_stderr(fmt::format(
          "bmojo: {}: holds {} of {} tokens of the prompt; go on with the others by --ids\n",
          base::shown(file), base::grouped(count), base::grouped(static_cast<int64_t>(size))));
  }
  check_interrupted();
}

void run_generate(const Options& options) {
  check(options);
  const auto model = open_model(options.choice, options.common.threads);
  const auto& writing = options.writing;
  const auto tokenizer = tokenizer_for(writing, options.choice.model, model->config());
  const auto prompt = prompt_of(options, model->config(), tokenizer.get());
  defer_interrupts();
  const auto start = std::chrono::steady_clock::now();
  auto read = begin_or_load(*model, writing.state_in, writing.seed);
  const uint64_t seed = read.seed;
  const auto is_stopped = [] { return interrupted_by() != 0; };
  const int64_t begin = read.memory->position();
  eval::read_prompt(*model, prompt.ids, read, is_stopped);
  const int64_t num_before = read.memory->position(), num_prompt = num_before - begin;
  if (is_stopped()) stop_in_prompt(*model, read, num_prompt, prompt.ids.size(), writing.state_out);
  const int64_t num_twice = model->num_read() - num_prompt;
  const double prefill = seconds_since(start);
  const auto decode_start = std::chrono::steady_clock::now();
  size_t written = 0;
  auto how = writing.how;
  how.goes_on = !writing.state_out.empty();
  how.is_stopped = is_stopped;
  const bool streams = prompt.is_text && !options.common.json && ::isatty(STDOUT_FILENO) == 1;
  for (int64_t i = 0; i < options.num_samples; ++i) {
    // The last one takes what was read: a copy costs as much as the memories are large.
    auto from = i + 1 < options.num_samples ? read.copy() : std::exchange(read, {});
    from.seed = seed + static_cast<uint64_t>(i);
    const int64_t num_read = model->num_read();
    const auto sample =
        eval::generate(*model, from, how, tokenizer.get(), streams ? stream_text : nullptr);
    written += sample.ids.size();
    if (options.common.json)
      print_json(generated_json(
          sample, tokenizer != nullptr, std::ssize(prompt.ids),
          num_twice + model->num_read() - num_read - (from.memory->position() - num_before)));
    else if (!prompt.is_text)
      fmt::print("{}\n", fmt::join(sample.ids, " "));
    else
      fmt::print("{}\n", streams ? "" : sample.text);
    std::fflush(stdout);
    if (!writing.state_out.empty()) model->save(from, writing.state_out);
    check_interrupted();
  }
  if (options.common.quiet || !base::is_live_terminal()) return;
  base::print_stderr(fmt::format(
      "{} tokens read at {:.0f} a second, {} written at {:.1f} a second, {} of memory\n",
      prompt.ids.size(), static_cast<double>(prompt.ids.size()) / prefill, written,
      static_cast<double>(written) / seconds_since(decode_start),
      base::si(static_cast<double>(base::process_memory("VmHWM")), "B")));
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
  add_writing_flags(*verb, options->writing);
  add_number(
      *verb,
      {"--num-samples", "Continuations, with seeds N, N+1, ...", 1, int64_t{1} << 40, "N [1]"},
      options->num_samples);
  add_number(*verb,
             {"--logprobs", "With --json: the N likeliest tokens of each place", 0,
              eval::kMaxLogprobs, "N [0]"},
             options->writing.how.num_logprobs);
  verb->add_flag("--ignore-eos", options->writing.how.ignore_eos,
                 "Go on after the end-of-sequence token");
  add_common(*verb, options->common);
  verb->callback([options, verb] {
    if (verb->get_option("--seed")->count() > 0) options->writing.seed = options->common.seed;
    run_verb([&] { run_generate(*options); });
  });
}

}  // namespace bmojo::cli
