#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bmojo/base/printable.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/cli/verbs.h"
#include "bmojo/data/tokenize.h"

namespace bmojo::cli {
namespace {

struct Options {
  Common common;
  std::string tokenizer, out, field = "text";
  std::vector<std::string> inputs;
  int64_t shard_tokens = int64_t{1} << 28;
};

std::string counted(int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", base::grouped(count), what, count == 1 ? "" : "s");
}

void print_summary(const Options& options, const data::TokenizeSummary& summary) {
  const double bytes_per_token =
      static_cast<double>(summary.num_bytes) / static_cast<double>(summary.num_tokens);
  if (options.common.json)
    return print_json({{"out", options.out},
                       {"tokenizer", summary.tokenizer},
                       {"vocab_size", summary.vocab_size},
                       {"documents", summary.num_documents},
                       {"tokens", summary.num_tokens},
                       {"bytes", summary.num_bytes},
                       {"bytes_per_token", bytes_per_token},
                       {"shards", summary.num_shards},
                       {"empty_documents", summary.num_empty_documents},
                       {"other_files", summary.num_other_files}});
  std::vector<std::string> left_out;
  if (summary.num_empty_documents > 0)
    left_out.push_back(counted(summary.num_empty_documents, "empty document"));
  if (summary.num_other_files > 0)
    left_out.push_back(counted(summary.num_other_files, "other file"));
  fmt::print("{}: {}, {}, {} B, {:.2f} bytes a token, {}{}{}\n", base::printable(options.out),
             counted(summary.num_documents, "document"), counted(summary.num_tokens, "token"),
             base::grouped(summary.num_bytes), bytes_per_token,
             counted(summary.num_shards, "shard"),
             left_out.empty() ? "" : "; left out: ", fmt::join(left_out, ", "));
}

void run_tokenize(const Options& options) {
  const int64_t cores = std::max<int64_t>(std::thread::hardware_concurrency(), 1);
  const data::TokenizeOptions work{
      .tokenizer = options.tokenizer,
      .inputs = std::vector<std::filesystem::path>(options.inputs.begin(), options.inputs.end()),
      .out = options.out,
      .field = options.field,
      .shard_tokens = options.shard_tokens,
      .num_threads = options.common.threads > 0 ? options.common.threads : cores};
  defer_interrupts();
  const auto summary = [&] {
    base::Progress progress("tokenize", "B", options.common.quiet);
    return data::tokenize(work, [&](int64_t done, int64_t total) {
      check_interrupted();
      progress.update(done, total);
    });
  }();
  print_summary(options, summary);
}

}  // namespace

void add_tokenize_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("tokenize", "Turn text into token shards");
  verb->add_option("INPUT", options->inputs, "Text or .jsonl files; folders of *.txt and *.jsonl")
      ->type_name("")
      ->required();
  verb->add_option("--tokenizer", options->tokenizer,
                   "bytes, tokenizer.json, tokenizer.model or vocab.json")
      ->option_text("bytes|FILE")
      ->required();
  verb->add_option("--out", options->out, "Folder to write: new or empty")
      ->option_text("DIR")
      ->required();
  verb->add_option("--field", options->field, "The field of a .jsonl line that holds its text")
      ->option_text("NAME [text]");
  add_number(*verb, {"--shard-tokens", "Tokens that fill a shard", 1, int64_t{1} << 40, "N [2^28]"},
             options->shard_tokens);
  add_common(*verb, options->common);
  verb->callback([options] { run_tokenize(*options); });
}

}  // namespace bmojo::cli
