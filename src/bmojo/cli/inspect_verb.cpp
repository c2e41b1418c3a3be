#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/cli/inspect.h"
#include "bmojo/cli/verbs.h"
#include "bmojo/data/shards.h"
#include "bmojo/infer/snapshot.h"
#include "bmojo/infer/weights.h"
#include "bmojo/memory/state_size.h"
#include "bmojo/model/checkpoint.h"
#include "bmojo/model/safetensors.h"
#include "bmojo/model/tensors.h"

namespace bmojo::cli {
namespace {
namespace fs = std::filesystem;

struct Options {
  Common common;
  std::string path;
  std::vector<std::string> settings;
  std::string model;
  bool verify = false;
};

using Files = std::span<const std::unique_ptr<model::SafetensorsFile>>;

// What the headers of all files say together.
struct Totals {
  int64_t tensors = 0, bytes = 0;
  std::map<std::string, int64_t> dtypes;  // tensors of each
};

Totals totals_of(Files files) {
  Totals totals;
  for (const auto& file : files) {
    totals.tensors += static_cast<int64_t>(file->tensors().size());
    totals.bytes += static_cast<int64_t>(file->data().size());
    for (const auto& tensor : file->tensors())
      ++totals.dtypes[std::string(model::name_of(tensor.dtype))];
  }
  return totals;
}

// Error where a file's bytes are not those its digest was made of; false where one has no digest.
bool verify(Files files, const Options& options) {
  base::Progress progress("verify", "B", options.common.quiet);
  const int64_t total = totals_of(files).bytes;
  int64_t before = 0;
  bool complete = true;
  for (const auto& file : files) {
    const auto stored = model::stored_digest(*file);
    if (stored.empty()) {
      complete = false;
      continue;
    }
    const auto computed = model::digest_of(file->data(), [&](size_t done) {
      progress.update(before + static_cast<int64_t>(done), total);
    });
    base::require(computed == stored, "{}: digest must be {}, got {}; the file is damaged",
                  file->mapping()->path().string(), base::printable(stored, 80), computed);
    before += static_cast<int64_t>(file->data().size());
  }
  return complete;
}

base::Json totals_json(const Totals& totals) {
  return {{"tensors", totals.tensors}, {"bytes", totals.bytes}, {"dtypes", totals.dtypes}};
}

base::Json files_json(Files files) {
  base::Json list = base::Json::array();
  for (const auto& file : files) {
    const auto digest = model::stored_digest(*file);
    list.push_back({{"name", file->mapping()->path().filename().string()},
                    {"bytes", file->mapping()->bytes().size()},
                    {"digest", digest.empty() ? base::Json(nullptr) : base::Json(digest)}});
  }
  return list;
}

base::Json memory_json(const memory::MemoryBytes& memory) {
  return {{"window", memory.window},       {"fading", memory.fading},
          {"ssm_state", memory.ssm_state}, {"conv_tail", memory.conv_tail},
          {"predictor", memory.predictor}, {"eidetic", memory.eidetic},
          {"total", memory.total()}};
}

std::string dtypes_text(const Totals& totals) {
  std::string text;
  for (const auto& [name, count] : totals.dtypes)
    text += fmt::format("{}{}", text.empty() ? "" : ", ",
                        totals.dtypes.size() == 1 ? name : fmt::format("{} {}", count, name));
  return text.empty() ? "none" : text;
}

void print_files(Files files) {
  const auto totals = totals_of(files);
  print_row("weights",
            fmt::format("{} in {} tensors, {}", dtypes_text(totals), base::grouped(totals.tensors),
                        base::si(double(totals.bytes), "B")));
  for (const auto& file : files) {
    const auto digest = model::stored_digest(*file);
    print_row("file", fmt::format("{}, {} B", file->mapping()->path().filename().string(),
                                  base::grouped(int64_t(file->mapping()->bytes().size()))));
    print_row("digest", digest.empty() ? "none stored" : digest);
  }
}

void print_verified(bool asked, bool complete) {
  if (asked) print_row("verified", complete ? "yes" : "not wholly: a digest is not stored");
}

std::string pattern_text(const model::Config& config) {
  const bool one = config.pattern.find(',') == std::string::npos;
  return one ? fmt::format("{} x {}", config.pattern, config.num_layers)
             : fmt::format("{}, cycled over {} layers", config.pattern, config.num_layers);
}

void print_memory(const model::Config& config) {
  fmt::print("memory of one sequence, fp32:\n");
  const base::Json memory = memory_json(memory::memory_bytes(config));
  for (const auto& [name, bytes] : memory.items()) {
    const auto value = bytes.get<int64_t>();
    fmt::print("  {:<12}{:>20} B{:>12}\n", name, base::grouped(value),
               base::si(double(value), "B"));
  }
  if (const int64_t growth = growth_of(config); growth > 0)
    fmt::print("  the window is unlimited and adds {} B a token\n", base::grouped(growth));
}

// Of weights that are packed, once the engine has found all of them in place.
std::optional<infer::WeightType> packed_type(const model::Checkpoint& checkpoint) {
  if (!checkpoint.tensors.is_packed()) return std::nullopt;
  return infer::Weights(checkpoint.tensors, checkpoint.config, {}, kernels::serial_for).type;
}

void inspect_checkpoint(const Options& options) {
  const auto folder = model::checkpoint_folder(options.path);
  const model::Checkpoint checkpoint(folder, model::Checkpoint::Packed::allowed);
  model::Config config = checkpoint.config;
  model::apply_memory_settings(config, options.settings);
  const auto packed = packed_type(checkpoint);
  const Files files(checkpoint.tensors.files());
  const bool complete = options.verify && verify(files, options);
  const int64_t parameters = model::count_parameters(config);
  const int64_t inner = model::count_parameters_without_embeddings(config);

  if (options.common.json) {
    base::Json json = {{"parameters", parameters},
                       {"parameters_without_embeddings", inner},
                       {"memory_bytes", memory_json(memory::memory_bytes(config))},
                       {"config", model::to_json(config)},
                       {"kind", "checkpoint"},
                       {"window_bytes_per_token", growth_of(config)}};
    json.update(totals_json(totals_of(files)));
    json["files"] = files_json(files);
    if (packed) json["packed"] = kernels::name_of(*packed);
    if (options.verify) json["verified"] = complete;
    return print_json(json);
  }
  print_row("checkpoint", folder.string());
  if (packed)
    print_row("packed", fmt::format("{}, from {}", kernels::name_of(*packed),
                                    model::digest_of(checkpoint.tensors)));
  print_row("model", model_text(config));
  print_row("layers", pattern_text(config));
  print_row("parameters", fmt::format("{} ({} without embeddings)", base::grouped(parameters),
                                      base::grouped(inner)));
  print_files(files);
  print_verified(options.verify, complete);
  print_memory(config);
}

void print_tensor(const model::TensorInfo& tensor) {
  const auto shape = model::to_string(tensor.shape);
  fmt::print("{:<50} {:<5}{:>24}\n", base::printable(base::printable(tensor.name), 48),
             model::name_of(tensor.dtype), shape.size() > 24 ? shape.substr(0, 21) + "..." : shape);
}

void inspect_file(const Options& options) {
  base::require(options.settings.empty(), "--set: needs a checkpoint folder, got the file {}",
                options.path);
  std::vector<std::unique_ptr<model::SafetensorsFile>> files;
  files.push_back(std::make_unique<model::SafetensorsFile>(options.path));
  const bool complete = options.verify && verify(files, options);
  const auto& file = *files.front();

  if (options.common.json) {
    base::Json json = {{"kind", "safetensors"}};
    json.update(totals_json(totals_of(files)));
    json["metadata"] = file.metadata();
    json["tensor_list"] = base::Json::array();
    for (const auto& tensor : file.tensors())
      json["tensor_list"].push_back({{"name", tensor.name},
                                     {"dtype", model::name_of(tensor.dtype)},
                                     {"shape", tensor.shape},
                                     {"bytes", tensor.end - tensor.begin}});
    if (options.verify) json["verified"] = complete;
    return print_json(json);
  }
  print_row("safetensors", options.path);
  print_files(files);
  print_verified(options.verify, complete);
  for (const auto& [name, value] : file.metadata())
    if (name != model::kDigestName) print_row("metadata", fmt::format("{} = {}", name, value));
  fmt::print("\n");
  for (const auto& tensor : file.tensors()) print_tensor(tensor);
}

base::Json shards_json(const data::TokenData& data) {
  base::Json list = base::Json::array();
  for (const auto& shard : data.shards()) {
    const auto& info = shard->info();
    list.push_back({{"name", shard->path().filename().string()},
                    {"bytes", shard->num_file_bytes()},
                    {"documents", info.num_documents},
                    {"tokens", info.num_tokens},
                    {"text_bytes", info.num_bytes},
                    {"digest", info.digest}});
  }
  return list;
}

void print_token_data(const data::TokenData& data, double bytes_per_token) {
  print_row("tokenizer", fmt::format("{}, {} ids, {} ends a document", data.tokenizer_name(),
                                     base::grouped(data.vocab_size()), data.end_of_document()));
  if (!data.tokenizer_digest().empty()) print_row("", data.tokenizer_digest());
  print_row("documents", base::grouped(data.num_documents()));
  print_row("tokens", base::grouped(data.num_tokens()));
  print_row("text", fmt::format("{} B, {:.2f} bytes a token", base::grouped(data.num_bytes()),
                                bytes_per_token));
  for (const auto& shard : data.shards()) {
    print_row("file", fmt::format("{}, {} B, {} tokens", shard->path().filename().string(),
                                  base::grouped(shard->num_file_bytes()),
                                  base::grouped(shard->info().num_tokens)));
    print_row("digest", shard->info().digest);
  }
}

void inspect_token_data(const Options& options) {
  base::require(options.settings.empty(),
                "--set: needs a checkpoint folder, got the token shards {}", options.path);
  const std::vector<fs::path> paths = {options.path};
  const data::TokenData data(paths);
  if (options.verify) {
    base::Progress progress("verify", "B", options.common.quiet);
    data.verify([&](int64_t done, int64_t total) { progress.update(done, total); });
  }
  const double bytes_per_token = double(data.num_bytes()) / double(data.num_tokens());

  if (options.common.json) {
    base::Json json = {{"kind", "tokens"},
                       {"tokenizer", data.tokenizer_name()},
                       {"tokenizer_digest", data.tokenizer_digest()},
                       {"tokenizer_file", data.tokenizer_file().string()},
                       {"vocab_size", data.vocab_size()},
                       {"end_of_document", data.end_of_document()},
                       {"documents", data.num_documents()},
                       {"tokens", data.num_tokens()},
                       {"text_bytes", data.num_bytes()},
                       {"bytes_per_token", bytes_per_token},
                       {"digest", data.digest()},
                       {"files", shards_json(data)}};
    if (options.verify) json["verified"] = true;
    return print_json(json);
  }
  print_row("shards", options.path);
  print_token_data(data, bytes_per_token);
  print_verified(options.verify, true);
}

void run_inspect(const Options& options) {
  const bool is_state = infer::is_snapshot(options.path);
  base::require(is_state || options.model.empty(), "--model: needs a state file, got {}",
                options.path);
  if (is_state) {
    base::require(options.settings.empty(), "--set: needs a checkpoint folder, got the state {}",
                  options.path);
    return inspect_state(options.path, options.model, options.common.json);
  }
  if (data::is_token_data(options.path)) return inspect_token_data(options);
  std::error_code ignored;
  fs::is_directory(options.path, ignored) ? inspect_checkpoint(options) : inspect_file(options);
}

}  // namespace

void print_row(std::string_view name, std::string_view value) {
  fmt::print("{:<14}{}\n", name, base::printable(base::printable(value), 65));
}

std::string model_text(const model::Config& config) {
  const bool bmojo = config.has(model::LayerKind::bmojo);
  const std::string_view kind = bmojo && config.eidetic_tokens > 0 ? "B'MOJO"
                                : bmojo                            ? "B'MOJO-F"
                                : !config.has_attention()          ? "Mamba"
                                : !config.has_ssm()                ? "Transformer"
                                                                   : "Hybrid";
  return fmt::format("{}, width {}, vocabulary {}", kind, config.hidden_size, config.vocab_size);
}

int64_t growth_of(const model::Config& config) {
  return memory::memory_bytes(config, 1).window - memory::memory_bytes(config, 0).window;
}

void add_inspect_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("inspect", "What a checkpoint, tensors, shards or a state hold");
  verb->add_option("PATH", options->path, "Checkpoint or run, .safetensors file, shards, state")
      ->type_name("")
      ->required();
  add_memory_settings(*verb, options->settings);
  verb->add_option("--model", options->model, "A state's model: its tokenizer shows the text")
      ->option_text("DIR");
  verb->add_flag("--verify", options->verify, "Hash the contents and compare with the digest");
  add_common(*verb, options->common);
  verb->callback([options] { run_inspect(*options); });
}

}  // namespace bmojo::cli
