#include "bmojo/cli/writing.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/data/unicode.h"
#include "bmojo/eval/prompt.h"
#include "bmojo/model/checkpoint.h"

namespace bmojo::cli {
namespace {

void add_sampling_flags(CLI::App& verb, kernels::Sampling& sampling) {
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

void add_writing_flags(CLI::App& verb, Writing& writing) {
  verb.add_option("--tokenizer", writing.tokenizer, "bytes or a file; the model's own by default")
      ->option_text("NAME");
  verb.add_option("--state-in", writing.state_in, "Go on from a saved state; nothing is reread")
      ->option_text("FILE");
  verb.add_option("--state-out", writing.state_out, "Save the state after the last token")
      ->option_text("FILE");
  add_number(verb,
             {"--max-tokens", "Tokens to add", 1, eval::kMaxTokens,
              fmt::format("N [{}]", writing.how.max_tokens)},
             writing.how.max_tokens);
  add_sampling_flags(verb, writing.how.sampling);
  verb.add_option("--stop", writing.how.stop, "Stop before this text; may be repeated")
      ->option_text("TEXT")
      ->allow_extra_args(false)
      ->check([](const std::string& text) {
        return text.empty() ? std::string("must not be empty") : std::string();
      });
}

std::unique_ptr<data::Tokenizer> tokenizer_for(const Writing& writing, const std::string& model,
                                               const model::Config& config) {
  const bool is_own = writing.tokenizer.empty();
  auto tokenizer = is_own ? data::tokenizer_of(model::checkpoint_folder(model), config.vocab_size)
                          : data::load_tokenizer(writing.tokenizer);
  base::require(tokenizer == nullptr || tokenizer->vocab_size() <= config.vocab_size,
                "{}: vocabulary must be at most the model's = {}, got {}",
                is_own ? "the model's tokenizer" : "--tokenizer", config.vocab_size,
                tokenizer == nullptr ? 0 : tokenizer->vocab_size());
  base::require(writing.how.stop.empty() || tokenizer != nullptr,
                "--stop: needs a tokenizer, got none in the model's folder; give --tokenizer");
  return tokenizer;
}

eval::Continuation begin_or_load(const eval::LanguageModel& model, const std::string& path,
                                 std::optional<int64_t> seed) {
  auto from = path.empty() ? eval::begin(model) : model.load(path);
  if (seed) from.seed = static_cast<uint64_t>(*seed);
  return from;
}

// Not through stdout, for which a signal that comes while a terminal waits is an error.
void stream_text(std::string_view text) {
  std::fflush(stdout);
  const auto shown = base::watchable(text);
  for (std::string_view rest = shown; !rest.empty();) {
    const ssize_t count = ::write(STDOUT_FILENO, rest.data(), rest.size());
    if (count < 0 && interrupted_by() != 0) return;  // it may have gone, or stand still
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      throw base::RunError(fmt::format("stdout: writing failed: {}", std::strerror(errno)));
    rest.remove_prefix(static_cast<size_t>(count));
  }
}

base::Json generated_json(const eval::Generated& sample, bool with_text, int64_t num_prompt,
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

}  // namespace bmojo::cli
