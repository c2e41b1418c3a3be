#include "bmojo/model/checkpoint.h"

#include <algorithm>
#include <set>

#include "bmojo/base/digest.h"
#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/input.h"
#include "bmojo/base/json.h"
#include "bmojo/model/tensors.h"

namespace bmojo::model {
namespace fs = std::filesystem;
namespace {

// Shard file names of an index, each once. A name may not lead out of the folder.
std::set<std::string> shard_names(const base::Json& index, const std::string& subject) {
  base::require(
      index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(),
      "{}: must hold an object weight_map", subject);
  std::set<std::string> names;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    base::require(file.is_string(), "{}: tensor '{}': file must be text, got {}", subject, tensor,
                  file.dump());
    const auto name = file.get<std::string>();
    base::require(base::is_plain_name(name),
                  "{}: tensor '{}': file must be a name inside the folder, got '{}'", subject,
                  tensor, name);
    names.insert(name);
  }
  return names;
}

}  // namespace

TensorFolder::TensorFolder(const fs::path& folder) : folder_(folder) {
  const auto index_path = folder / kIndexFile;
  std::map<std::string, std::string> weight_map;  // empty: one file
  if (fs::exists(folder / kWeightsFile)) {
    files_.push_back(std::make_unique<SafetensorsFile>(folder / kWeightsFile));
  } else if (fs::exists(index_path)) {
    const auto index = base::parse_json(base::read_text(index_path), index_path.string());
    for (const auto& name : shard_names(index, index_path.string()))
      files_.push_back(std::make_unique<SafetensorsFile>(folder / name));
    for (const auto& [name, file] : index["weight_map"].items()) weight_map[name] = file;
    base::require(!weight_map.empty(), "{}: weight_map must name a tensor, got none",
                  index_path.string());
  } else {
    base::fail("{}: folder must hold {} or {}, got neither", folder.string(), kWeightsFile,
               kIndexFile);
  }
  for (const auto& file : files_)
    for (const auto& info : file->tensors()) {
      const bool fresh = entries_.emplace(info.name, Entry{file.get(), &info}).second;
      base::require(fresh, "{}: tensor '{}' must stand in one shard, got two", folder.string(),
                    info.name);
    }
  if (weight_map.empty()) return;
  for (const auto& [name, file] : weight_map) {
    const auto it = entries_.find(name);
    base::require(it != entries_.end() && it->second.file->mapping()->path().filename() == file,
                  "{}: tensor '{}' must stand in {}, got none there", index_path.string(), name,
                  file);
  }
  for (const auto& [name, entry] : entries_)
    base::require(weight_map.contains(name), "{}: tensor '{}' of {} is missing from the index",
                  index_path.string(), name, entry.file->mapping()->path().filename().string());
}

TensorFolder::Entry TensorFolder::at(std::string_view name, const Shape& shape) const {
  const auto it = entries_.find(name);
  base::require(it != entries_.end(), "{}: tensor '{}' is missing", folder_.string(), name);
  const auto& info = *it->second.info;
  base::require(info.shape == shape, "{}: tensor '{}' must be {}, got {}", folder_.string(), name,
                to_string(shape), to_string(info.shape));
  base::require(info.dtype == Dtype::f32 || info.dtype == Dtype::bf16 || info.dtype == Dtype::f16,
                "{}: tensor '{}' must be F32, BF16 or F16, got {}", folder_.string(), name,
                name_of(info.dtype));
  return it->second;
}

bool TensorFolder::is_packed() const {
  return std::ranges::any_of(
      files_, [](const auto& file) { return file->metadata().contains(kLayoutName); });
}

std::string digest_of(const TensorFolder& tensors) {
  if (tensors.is_packed()) {
    const auto& metadata = tensors.files().front()->metadata();
    const auto it = metadata.find(kPackedFromName);
    base::require(it != metadata.end(), "{}: metadata must hold {}, got none",
                  base::shown(tensors.folder()), kPackedFromName);
    return it->second;
  }
  std::string all;
  for (const auto& file : tensors.files()) {
    const auto stored = stored_digest(*file);
    all += stored.empty() ? digest_of(file->data()) : stored;
  }
  return tensors.files().size() == 1 ? all : base::digest_of_text(all);
}

Checkpoint::Checkpoint(const fs::path& folder, Packed packed)
    : config(load_config(folder)), tensors(folder) {
  if (tensors.is_packed()) {
    base::require(
        packed == Packed::allowed,
        "{}: must be a plain checkpoint, got one that is packed for the engine; use the folder "
        "that it was made from",
        base::shown(folder));
    return;
  }
  std::set<std::string_view> wanted;
  const auto specs = tensor_specs(config);
  for (const auto& spec : specs) {
    tensors.at(spec.name, spec.shape);
    wanted.insert(spec.name);
  }
  for (const auto& [name, entry] : tensors.entries())
    base::require(wanted.contains(name), "{}: tensor '{}' is not part of this config",
                  folder.string(), name);
}

fs::path checkpoint_folder(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / kConfigFile, ignored)) return folder;
  if (fs::exists(folder / kLatest / kConfigFile, ignored)) return folder / kLatest;
  base::require(!fs::exists(folder / kRunFile, ignored),
                "{}: must hold a checkpoint, got a run that has none yet", folder.string());
  return folder;
}

Config load_config(const fs::path& file_or_folder) {
  base::require(fs::exists(file_or_folder), "{}: file must exist, got none",
                file_or_folder.string());
  const auto path =
      fs::is_directory(file_or_folder) ? file_or_folder / kConfigFile : file_or_folder;
  return config_from_json(base::parse_json(base::read_text(path, size_t{1} << 20), path.string()),
                          path.string());
}

void save_config(const Config& config, const fs::path& folder) {
  base::write_text(folder / kConfigFile, to_json(config).dump(2) + "\n");
}

}  // namespace bmojo::model
