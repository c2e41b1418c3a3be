#include <algorithm>
#include <memory>
#include <optional>

#include "bmojo/base/error.h"
#include "bmojo/base/input.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/engine.h"
#include "bmojo/eval/ids_line.h"
#include "bmojo/eval/score.h"
#include "bmojo/model/safetensors.h"

namespace bmojo::cli {
namespace {

struct Options {
  Common common;
  EngineChoice choice;
  std::string ids, logits;
  int64_t chunk = 512, batch = 1;
};

using eval::Ids;

// One {"ids": [..]} a line.
std::vector<Ids> read_lines(const std::string& path, const model::Config& config) {
  base::LineReader reader(path);
  std::vector<Ids> lines;
  for (std::string text; reader.next(text);) {
    lines.push_back(eval::parse_ids_line(text, reader.where()));
    check_ids(lines.back(), config, reader.where());
  }
  base::require(!lines.empty(), "{}: must hold at least one line, got none", path);
  return lines;
}

// What each token of a line had, and what was most likely in its place, given the tokens before it:
// {"logprobs": [null, …], "argmax": [null, …], "top": [null, …]}.
base::Json summary(const eval::TokenScores& scores) {
  base::Json json = {{"logprobs", {nullptr}}, {"argmax", {nullptr}}, {"top", {nullptr}}};
  for (size_t i = 0; i < scores.own.size(); ++i) {
    json["logprobs"].push_back(static_cast<double>(scores.own[i]));
    json["argmax"].push_back(scores.argmax[i]);
    json["top"].push_back(static_cast<double>(scores.top[i]));
  }
  return json;
}

void run_score(const Options& options) {
  const auto model = open_model(options.choice, options.common.threads);
  const auto lines = read_lines(options.ids, model->config());
  const int64_t V = model->config().vocab_size;
  int64_t total = 0, done = 0;
  std::vector<model::TensorInfo> infos;
  for (size_t i = 0; i < lines.size(); ++i) {
    infos.push_back({fmt::format("logits.{}", i), model::Dtype::f32, {std::ssize(lines[i]), V}});
    total += std::ssize(lines[i]);
  }
  std::optional<model::SafetensorsWriter> writer;
  if (!options.logits.empty())
    writer.emplace(options.logits, infos, std::map<std::string, std::string>{});
  defer_interrupts();
  base::Progress progress("score", "tokens", options.common.quiet);
  const auto batch = static_cast<size_t>(options.batch);
  for (size_t from = 0; from < lines.size(); from += batch) {
    const auto count = std::min(batch, lines.size() - from);
    std::vector<std::vector<float>> logits(count);
    eval::ScoreOptions how{.chunk = options.chunk, .between_chunks = check_interrupted};
    if (writer)
      how.on_logits = [&](int64_t line, int64_t, int64_t n, const float* rows) {
        auto& kept = logits[static_cast<size_t>(line)];
        kept.insert(kept.end(), rows, rows + n * V);
      };
    const auto scores = eval::score(*model, std::span(lines).subspan(from, count), how);
    for (size_t i = 0; i < count; ++i) {
      print_json(summary(scores[i]));
      if (writer) writer->write(std::as_bytes(std::span(logits[i])));
      done += std::ssize(lines[from + i]);
      progress.update(done, total);
    }
  }
  if (writer) writer->commit();
}

}  // namespace

void add_score_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("score", "Log-probabilities of given tokens");
  add_engine_flags(*verb, options->choice);
  verb->add_option("--ids", options->ids, "One {\"ids\": [..]} a line; - reads standard input")
      ->option_text("FILE")
      ->required();
  verb->add_option("--logits", options->logits, "Also store logits.N [length, vocab] of line N")
      ->option_text("OUT.safetensors");
  add_number(*verb,
             {"--chunk", "Tokens fed at once; 1 = step by step", 1, int64_t{1} << 20, "N [512]"},
             options->chunk);
  add_number(*verb, {"--batch", "Lines at once", 1, int64_t{1} << 20, "N [1]"}, options->batch);
  add_common(*verb, options->common);
  verb->callback([options] { run_verb([&] { run_score(*options); }); });
}

}  // namespace bmojo::cli
