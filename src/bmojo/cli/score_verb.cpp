#include <torch/torch.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "bmojo/base/error.h"
#include "bmojo/base/input.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/torch_verbs.h"
#include "bmojo/model/safetensors.h"

namespace bmojo {
namespace {

struct Options {
  Common common;
  std::string model, ids, logits, engine = "torch";
  std::vector<std::string> set;
  int64_t chunk = 512, batch = 1;
};

using Ids = std::vector<int64_t>;

// One {"ids": [..]} a line.
Ids parse_line(const std::string& text, const std::string& subject) {
  const auto json = parse_json(text, subject);
  require(json.is_object() && json.contains("ids") && json["ids"].is_array(),
          "{}: must be {{\"ids\": [..]}}, got {}", subject, json.dump().substr(0, 60));
  Ids ids;
  for (const auto& id : json["ids"]) {
    require(id.is_number_integer() && (!id.is_number_unsigned() || id.get<uint64_t>() <= INT64_MAX),
            "{}: ids must be whole numbers, got {}", subject, id.dump().substr(0, 60));
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

std::vector<Ids> read_lines(const std::string& path, const Config& config) {
  LineReader reader(path);
  std::vector<Ids> lines;
  for (std::string text; reader.next(text);) {
    lines.push_back(parse_line(text, reader.where()));
    check_ids(lines.back(), config, reader.where());
  }
  require(!lines.empty(), "{}: must hold at least one line, got none", path);
  return lines;
}

// What each token of a line had, and what was most likely in its place, given the tokens before it:
// {"logprobs": [null, …], "argmax": [null, …], "top": [null, …]}.
struct Line {
  Json summary = {{"logprobs", {nullptr}}, {"argmax", {nullptr}}, {"top", {nullptr}}};
  std::vector<at::Tensor> logits;  // [tokens, V] a chunk each, where they are kept
};

// `logits` [n, V] stand after tokens from … from + n - 1.
void add_chunk(Line& line, const Ids& ids, int64_t from, const at::Tensor& logits) {
  if (!logits.isfinite().all().item<bool>())
    throw RunError(
        fmt::format("score: logits must be finite, got NaN or infinity near token {}", from));
  const int64_t n = std::min<int64_t>(logits.size(0), std::ssize(ids) - 1 - from);
  if (n == 0) return;
  const auto log_p = at::log_softmax(logits.narrow(0, 0, n), -1);
  const Ids following(ids.begin() + from + 1, ids.begin() + from + 1 + n);
  const auto own = log_p.gather(1, torch::tensor(following, at::kLong).unsqueeze(1)).squeeze(1);
  const auto [top, argmax] = log_p.max(1);
  for (int64_t i = 0; i < n; ++i) {
    line.summary["logprobs"].push_back(own[i].item<double>());
    line.summary["argmax"].push_back(argmax[i].item<int64_t>());
    line.summary["top"].push_back(top[i].item<double>());
  }
}

// The lines advance together, `chunk` tokens a call.
std::vector<Line> score(const nn::Model& model, std::span<const Ids> lines,
                        const Options& options) {
  torch::NoGradGuard no_grad;
  const int64_t B = std::ssize(lines);
  int64_t longest = 0;
  for (const auto& line : lines) longest = std::max<int64_t>(longest, std::ssize(line));
  nn::State state;
  std::vector<Line> out(B);
  for (int64_t from = 0; from < longest; from += options.chunk) {
    const int64_t L = std::min(options.chunk, longest - from);
    nn::CallOptions call;
    auto ids = at::zeros({B, L}, at::kLong);
    for (int64_t b = 0; b < B; ++b) {
      const int64_t length = std::clamp<int64_t>(std::ssize(lines[b]) - from, 0, L);
      call.lengths.push_back(length);
      std::copy_n(lines[b].begin() + std::min<int64_t>(from, std::ssize(lines[b])), length,
                  ids.data_ptr<int64_t>() + b * L);
    }
    auto result = model.forward(ids, state, call);
    for (int64_t b = 0; b < B; ++b) {
      if (call.lengths[b] == 0) continue;
      const auto logits = model.logits(result.hidden[b].narrow(0, 0, call.lengths[b]));
      add_chunk(out[b], lines[b], from, logits);
      if (!options.logits.empty()) out[b].logits.push_back(logits);
    }
    state = std::move(result.state);
    check_interrupted();
  }
  return out;
}

void run_score(const Options& options) {
  use_threads(options.common.threads);
  const auto model = load_model(options.model, options.set);
  const auto lines = read_lines(options.ids, model.config());
  int64_t total = 0, done = 0;
  std::vector<TensorInfo> infos;
  for (size_t i = 0; i < lines.size(); ++i) {
    infos.push_back({fmt::format("logits.{}", i),
                     Dtype::f32,
                     {std::ssize(lines[i]), model.config().vocab_size}});
    total += std::ssize(lines[i]);
  }
  std::optional<SafetensorsWriter> writer;
  if (!options.logits.empty())
    writer.emplace(options.logits, infos, std::map<std::string, std::string>{});
  defer_interrupts();
  Progress progress("score", "tokens", options.common.quiet);
  for (size_t from = 0; from < lines.size(); from += options.batch) {
    const auto count = std::min<size_t>(options.batch, lines.size() - from);
    const auto scored = score(model, std::span(lines).subspan(from, count), options);
    for (size_t i = 0; i < count; ++i) {
      print_json(scored[i].summary);
      for (const auto& logits : scored[i].logits)
        writer->write(std::as_bytes(std::span(logits.data_ptr<float>(), logits.numel())));
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
  verb->add_option("--model", options->model, "Checkpoint folder")->option_text("DIR")->required();
  verb->add_option("--ids", options->ids, "One {\"ids\": [..]} a line; - reads standard input")
      ->option_text("FILE")
      ->required();
  verb->add_option("--logits", options->logits, "Also store logits.N [length, vocab] of line N")
      ->option_text("OUT.safetensors");
  verb->add_option("--engine", options->engine, "torch (a native engine is not in this version)")
      ->check(CLI::IsMember({"torch"}))
      ->option_text("torch");
  add_number(*verb,
             {"--chunk", "Tokens fed at once; 1 = step by step", 1, int64_t{1} << 20, "N [512]"},
             options->chunk);
  add_number(*verb, {"--batch", "Lines at once", 1, int64_t{1} << 20, "N [1]"}, options->batch);
  add_memory_settings(*verb, options->set);
  add_common(*verb, options->common);
  verb->callback([options] { run_verb([&] { run_score(*options); }); });
}

}  // namespace bmojo
