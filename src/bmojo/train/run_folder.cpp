#include "bmojo/train/run_folder.h"

#include <torch/torch.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "bmojo/base/digest.h"
#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/input.h"
#include "bmojo/base/printable.h"
#include "bmojo/data/tokenizer.h"
#include "bmojo/model/safetensors.h"
#include "bmojo/train/tensor_file.h"

namespace bmojo::train {
namespace fs = std::filesystem;
namespace {

constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kBest = "best";
constexpr std::string_view kPartial = ".partial", kTemporary = ".tmp-";

std::string step_name(int64_t step) { return fmt::format("step-{:08}", step); }
std::string state_name(int rank) { return fmt::format("state-{}.safetensors", rank); }

// The step of a folder "step-N", or nothing.
std::optional<int64_t> step_of(const fs::path& folder) {
  const auto name = folder.filename().string();
  if (!name.starts_with("step-")) return {};
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data() + 5, end, step);
  if (error != std::errc() || at != end) return {};
  return step;
}

// Every tensor of a state by a name; the order is fixed, so reading walks it again.
template <typename Visit>
void for_each_tensor(nn::State& state, const std::string& prefix, Visit&& visit) {
  for (size_t i = 0; i < state.layers.size(); ++i) {
    const auto one = [&](const char* leaf, at::Tensor& x) {
      visit(fmt::format("{}layers.{}.{}", prefix, i, leaf), x);
    };
    nn::LayerState::visit(state.layers[i], one, one);
  }
}

NamedTensors state_tensors(std::vector<nn::State>& states) {
  NamedTensors tensors;
  for (size_t m = 0; m < states.size(); ++m) {
    const auto prefix = fmt::format("micro.{}.", m);
    const auto add = [&](const std::string& name, const at::Tensor& x) {
      if (x.defined()) tensors.emplace_back(name, x);
    };
    const auto& cursor = states[m].cursor;
    add(prefix + "position", torch::tensor(cursor.position, at::kLong));
    add(prefix + "document", torch::tensor(cursor.document, at::kLong));
    for_each_tensor(states[m], prefix, add);
  }
  return tensors;
}

void restore_states(const fs::path& path, size_t num_layers, std::vector<nn::State>& states) {
  std::map<std::string, at::Tensor> tensors;
  for (auto& [name, tensor] : read_tensors(path)) tensors[name] = tensor;
  const auto numbers = [&](const std::string& name) {
    const auto x = tensors.at(name);
    return std::vector<int64_t>(x.data_ptr<int64_t>(), x.data_ptr<int64_t>() + x.numel());
  };
  for (size_t m = 0; m < states.size(); ++m) {
    const auto prefix = fmt::format("micro.{}.", m);
    states[m] = {};
    // A sequence that has read nothing yet has no memories to restore.
    if (!tensors.contains(prefix + "position")) continue;
    states[m].cursor = {numbers(prefix + "position"), numbers(prefix + "document")};
    if (states[m].cursor.position.empty()) continue;
    states[m].layers.resize(num_layers);
    for_each_tensor(states[m], prefix, [&](const std::string& name, at::Tensor& x) {
      if (const auto it = tensors.find(name); it != tensors.end()) x = it->second;
    });
  }
}

// Visits (name in the file, tensor) of the optimiser's state.
template <typename Visit>
void for_each_moment(const Snapshot& snapshot, Visit&& visit) {
  size_t i = 0;
  for (const auto& group : snapshot.optimizer.moments())
    for (size_t j = 0; j < group.first.size(); ++j, ++i) {
      visit("first." + snapshot.names[i], group.first[j]);
      visit("second." + snapshot.names[i], group.second[j]);
      visit("steps." + snapshot.names[i], group.steps[j]);
    }
}

void write_manifest(const fs::path& folder) {
  std::map<std::string, base::Json> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const base::MappedFile file(entry.path());
    files[entry.path().filename()] = {{"bytes", file.bytes().size()},
                                      {"digest", model::digest_of(file.bytes())}};
  }
  base::write_text(folder / kManifestFile, base::Json{{"files", files}}.dump(1) + "\n");
}

// Links are none of ours, and lead anywhere.
bool is_file_itself(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(fs::symlink_status(path, ignored));
}

// Error where a file is not as the manifest of its folder has it.
void check_file(const fs::path& folder, const std::string& name, const base::Json& stored) {
  base::require(base::is_plain_name(name), "{} must name files of its folder, got {}",
                kManifestFile, base::in_quotes(name));
  base::require(is_file_itself(folder / name), "{} must name regular files, got {}", kManifestFile,
                base::in_quotes(name));
  const bool is_entry = stored.is_object() && stored.contains("bytes") &&
                        stored["bytes"].is_number_unsigned() && stored.contains("digest") &&
                        stored["digest"].is_string();
  base::require(is_entry, "{} must give bytes and digest of {}, got {}", kManifestFile,
                base::in_quotes(name), base::printable(stored.dump(), 80));
  const base::MappedFile file(folder / name);
  base::require(file.bytes().size() == stored["bytes"], "{} must hold {} bytes, got {}",
                base::printable(name), stored["bytes"].get<size_t>(), file.bytes().size());
  base::require(model::digest_of(file.bytes()) == stored["digest"],
                "{} must have the digest of {}, got another", base::printable(name), kManifestFile);
}

// Why a checkpoint is not what its manifest says; nothing where it is.
std::optional<std::string> fault_of(const fs::path& folder) {
  try {
    base::require(is_file_itself(folder / kManifestFile), "{} must be a regular file, got none",
                  kManifestFile);
    const auto manifest = base::parse_json(base::read_text(folder / kManifestFile), kManifestFile);
    const bool names_files = manifest.is_object() && manifest.contains("files") &&
                             manifest["files"].is_object() && !manifest["files"].empty();
    base::require(names_files, "{} must name a file, got none", kManifestFile);
    for (const auto& [name, stored] : manifest["files"].items()) check_file(folder, name, stored);
    return {};
  } catch (const std::exception& fault) {
    return fault.what();
  }
}

// The manifest goes first: what is left of a removal that was cut short is no checkpoint.
void remove_checkpoint(const fs::path& folder) {
  base::remove_path(folder / kManifestFile);
  base::remove_path(folder);
}

std::map<int64_t, fs::path> steps_of(const fs::path& run) {
  std::map<int64_t, fs::path> steps;
  for (const auto& entry : fs::directory_iterator(run))
    if (const auto step = step_of(entry.path()); step && entry.is_directory())
      steps[*step] = entry.path();
  return steps;
}

// RunError where `latest` says that there were some.
std::map<int64_t, fs::path> steps_to_resume(const fs::path& run) {
  auto steps = steps_of(run);
  if (steps.empty() && fs::is_symlink(run / model::kLatest))
    throw base::RunError(
        fmt::format("{}: must hold the checkpoint that {} names, got no step at all; put it "
                    "back, or start anew in another --out",
                    run.string(), model::kLatest));
  return steps;
}

std::string link_target(const fs::path& link) {
  std::error_code error;
  return fs::read_symlink(link, error).string();
}

// Whether it is something of ours that a kill left half written.
bool is_unfinished(const fs::path& path) {
  const auto name = path.filename().string();
  if (name.ends_with(kPartial)) return step_of(path.stem()).has_value();
  const auto end = name.find(kTemporary);
  const auto of = [&](std::string_view whole) { return name.substr(0, end) == whole; };
  return end != name.npos && (of(model::kRunFile) || of(kRecordFile) || of(kMetricsFile) ||
                              of(model::kLatest) || of(kBest));
}

Record read_record(const fs::path& path) {
  const auto json = base::parse_json(base::read_text(path), path.string());
  base::require(json.is_object() && json.contains("config") && json.contains("source"),
                "{}: must hold config and source of a run, got another file", path.string());
  return {model::config_from_json(json["config"], path.string()), json["source"]};
}

// Whether a folder holds nothing but what was left of a run killed while it was made.
bool is_unused(const fs::path& folder) {
  return std::ranges::all_of(fs::directory_iterator(folder), [](const fs::directory_entry& entry) {
    const auto name = entry.path().filename().string();
    if (name == kRecordFile) read_record(entry.path());  // Error for another's file
    return name == kLockFile || name == kRecordFile ||
           (name.starts_with("run.") && is_unfinished(entry.path()));
  });
}

// The step of a line of metrics; beyond all steps where a power cut has left something else.
int64_t step_of_line(const std::string& line) {
  try {
    return base::parse_json(line, kMetricsFile).at("step").get<int64_t>();
  } catch (const std::exception&) {
    return INT64_MAX;
  }
}

// What goes wrong with files while a run goes on is no mistake of the caller.
template <typename Work>
void as_run_error(const fs::path& subject, Work&& work) {
  try {
    work();
  } catch (const fs::filesystem_error& error) {
    throw base::RunError(fmt::format("{}: {}", subject.string(), error.code().message()));
  } catch (const base::Error& error) {
    throw base::RunError(error.what());
  }
}

void write_shared_files(const fs::path& folder, const Snapshot& snapshot) {
  model::save_config(snapshot.model.config(), folder);
  write_tensors(folder / model::kWeightsFile, snapshot.model.parameters());
  NamedTensors moments;
  for_each_moment(snapshot, [&](const std::string& name, const at::Tensor& x) {
    moments.emplace_back(name, x);
  });
  write_tensors(folder / kOptimizerFile, moments);
  for (const auto& [name, text] : snapshot.tokenizer) base::write_text(folder / name, text);
  base::write_text(folder / data::kProgressFile, snapshot.progress.dump(1) + "\n");
}

}  // namespace

void check_new(const fs::path& run) {
  if (!fs::exists(run) || (fs::is_directory(run) && is_unused(run))) return;
  // What --resume takes. A run without a checkpoint may have been a mistake.
  const bool is_run = fs::exists(run / model::kRunFile);
  const char* remedy = "; name another one";
  if (is_run && !steps_of(run).empty())
    remedy = "; add --resume to go on with the run in it, or name another one";
  else if (is_run && fs::exists(run / kRecordFile) && !fs::is_symlink(run / model::kLatest))
    remedy =
        "; the run in it has no checkpoint yet: delete the folder, or start that run again "
        "with --resume";
  base::fail("--out: folder must be new or empty, got {}{}", base::in_quotes(run.string()), remedy);
}

void check_started(const fs::path& run) {
  const auto refuse = [&](const char* missing, const char* remedy) {
    base::fail("--out: must be the folder of a run to resume, got {} without {}{}",
               base::in_quotes(run.string()), missing, remedy);
  };
  if (!fs::exists(run / model::kRunFile)) {
    const bool is_free = !fs::exists(run) || (fs::is_directory(run) && is_unused(run));
    refuse(model::kRunFile, is_free ? "; start it without --resume" : "; name the folder of a run");
  }
  if (steps_to_resume(run).empty() && !fs::exists(run / kRecordFile))
    refuse(kRecordFile, "; give its run.toml to --run, with another --out");
}

void create(const fs::path& run, const Record& record, const std::string& toml) {
  check_new(run);
  const base::Json json = {{"config", model::to_json(record.config)}, {"source", record.source}};
  base::write_text(run / kRecordFile, json.dump(1) + "\n");
  base::write_text(run / model::kRunFile, toml);
}

Record load_record(const fs::path& run) {
  if (fs::exists(run / kRecordFile)) return read_record(run / kRecordFile);
  const auto step = find_checkpoint(run, [](const std::string&) {});
  base::require(step.has_value(), "{}: must hold {} or a checkpoint, got neither", run.string(),
                kRecordFile);
  const auto checkpoint = step_folder(run, *step);
  return {model::load_config(checkpoint), data::load_progress(checkpoint).at("source")};
}

fs::path step_folder(const fs::path& run, int64_t step) { return run / step_name(step); }

std::string newest_step_name(const fs::path& run, int64_t until) {
  const auto steps = steps_of(run);
  const auto next = steps.upper_bound(until);
  return next == steps.begin() ? "none" : step_name(std::prev(next)->first);
}

void save(const fs::path& run, int64_t step, const Snapshot& snapshot, const Workers& workers) {
  const auto target = step_folder(run, step);
  fs::path folder = target;
  folder += kPartial;
  try {
    as_run_error(folder, [&] {
      if (workers.first()) {
        base::remove_path(folder);
        base::create_folder(folder);
      }
      workers.barrier();
      if (!snapshot.states.empty())
        write_tensors(folder / state_name(workers.rank()), state_tensors(snapshot.states));
      if (workers.first()) write_shared_files(folder, snapshot);
      workers.barrier();
      if (workers.first()) {
        write_manifest(folder);
        if (fs::exists(target)) remove_checkpoint(target);
        base::move_folder(folder, target);
      }
      workers.barrier();
    });
  } catch (...) {
    // Room for others on a full disk. Worker 0 hears of a failure elsewhere by losing that worker.
    std::error_code ignored;
    if (workers.first()) fs::remove_all(folder, ignored);
    throw;
  }
}

void mark(const fs::path& run, int64_t latest, int64_t best) {
  const auto point = [&](const char* name, int64_t step) {
    const bool is_there = step >= 0 && fs::exists(step_folder(run, step));
    const auto target = is_there ? step_name(step) : "";
    if (link_target(run / name) == target) return;
    if (is_there) return base::replace_link(run / name, target);
    base::remove_path(run / name);
  };
  as_run_error(run, [&] {
    point(model::kLatest, latest);
    point(kBest, best);
  });
}

void prune(const fs::path& run, int64_t keep) {
  if (keep == 0) return;
  as_run_error(run, [&] {
    const auto steps = steps_of(run);
    const auto latest = link_target(run / model::kLatest), best = link_target(run / kBest);
    auto num_kept = std::ssize(steps);
    for (const auto& [step, folder] : steps) {
      if (num_kept-- <= keep) break;
      const auto name = folder.filename().string();
      if (name != latest && name != best) remove_checkpoint(folder);
    }
  });
}

std::optional<int64_t> find_checkpoint(const fs::path& run,
                                       const std::function<void(const std::string&)>& say) {
  const auto steps = steps_to_resume(run);
  for (auto it = steps.rbegin(); it != steps.rend(); ++it) {
    const auto fault = fault_of(it->second);
    if (!fault) return it->first;
    say(fmt::format("skipping {}, which is not what its manifest says: {}", it->second.string(),
                    *fault));
  }
  if (!steps.empty())
    throw base::RunError(
        fmt::format("{}: must hold a whole checkpoint to resume from, got {} damaged", run.string(),
                    steps.size()));
  return {};
}

void remove_unfinished(const fs::path& run) {
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(run))
    if (is_unfinished(entry.path())) leftovers.push_back(entry.path());
  for (const auto& path : leftovers) base::remove_path(path);
}

void require_same_run(const fs::path& run, int64_t step, const Recipe& recipe, const Source& source,
                      const model::Config& config) {
  const auto checkpoint = step_folder(run, step);
  const auto progress = data::load_progress(checkpoint);
  require_same(progress.at("recipe"), fixed_fields(recipe), run.string());
  require_same(progress.at("source"), source.identity(), run.string());
  require_same(model::to_json(model::load_config(checkpoint)), model::to_json(config),
               run.string());
}

void load(const fs::path& checkpoint, const Snapshot& snapshot, const Workers& workers) {
  torch::NoGradGuard no_grad;
  const model::Checkpoint weights(checkpoint);
  for (const auto& [name, tensor] : nn::load_parameters(weights))
    at::Tensor(snapshot.model.parameter(name)).copy_(tensor);
  std::map<std::string, at::Tensor> moments;
  for (const auto& [name, tensor] : read_tensors(checkpoint / kOptimizerFile))
    moments[name] = tensor;
  for_each_moment(snapshot, [&](const std::string& name, at::Tensor x) {
    const auto it = moments.find(name);
    base::require(it != moments.end() && it->second.sizes() == x.sizes(),
                  "{}: {} must hold {} of this model's shape", checkpoint.string(), kOptimizerFile,
                  name);
    x.copy_(it->second);
  });
  if (!snapshot.states.empty())
    restore_states(checkpoint / state_name(workers.rank()), snapshot.model.layers().size(),
                   snapshot.states);
}

void cut_metrics(const fs::path& run, int64_t step) {
  const auto path = run / kMetricsFile;
  if (!fs::exists(path)) return;
  const auto text = base::read_text(path, SIZE_MAX);
  std::string kept;
  for (size_t at = 0; at < text.size();) {
    const auto end = text.find('\n', at);
    if (end == std::string::npos) break;  // torn by a kill
    const auto line = text.substr(at, end + 1 - at);
    if (step_of_line(line) > step) break;
    kept += line;
    at = end + 1;
  }
  if (kept.size() != text.size()) base::write_text(path, kept);
}

}  // namespace bmojo::train
