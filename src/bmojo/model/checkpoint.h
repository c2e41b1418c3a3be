#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bmojo/model/config.h"
#include "bmojo/model/safetensors.h"

namespace bmojo::model {

inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kWeightsFile = "model.safetensors";
inline constexpr const char* kIndexFile = "model.safetensors.index.json";
// Of a training run: what was asked for, and a link to the newest checkpoint.
inline constexpr const char* kRunFile = "run.toml";
inline constexpr const char* kLatest = "latest";

// The tensors of a folder: one model.safetensors, or shards named by an index. Only headers are
// read.
class TensorFolder {
 public:
  explicit TensorFolder(const std::filesystem::path& folder);

  struct Entry {
    const SafetensorsFile* file;
    const TensorInfo* info;
  };
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  // Error naming the tensor where it is missing, of another shape or not of floating point.
  Entry at(std::string_view name, const Shape& shape) const;
  const std::vector<std::unique_ptr<SafetensorsFile>>& files() const { return files_; }
  const std::filesystem::path& folder() const { return folder_; }
  // Whether the weights are laid out for the engine, under names of its own
  // (infer/packed_folder.h).
  bool is_packed() const;

 private:
  std::filesystem::path folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Entry, std::less<>> entries_;
};

// What metadata of a packed checkpoint's file says.
inline constexpr const char* kLayoutName = "bmojo.layout";
inline constexpr const char* kPackedFromName = "bmojo.packed_from";  // the plain weights' digest

// Of the digests that the files store; one without is read and hashed. A packed checkpoint has that
// of the weights it was made of: a state of the one is a state of the other.
std::string digest_of(const TensorFolder& tensors);

// A native checkpoint: config.json and every tensor the config asks for, no more and no fewer.
// A packed one is an error unless it is allowed, and its tensors are then the engine's to check.
struct Checkpoint {
  enum class Packed { refused, allowed };
  explicit Checkpoint(const std::filesystem::path& folder, Packed packed = Packed::refused);
  Config config;
  TensorFolder tensors;
};

// The folder itself, or, where it is that of a training run, its latest checkpoint. Error where the
// run has none.
std::filesystem::path checkpoint_folder(const std::filesystem::path& folder);

Config load_config(const std::filesystem::path& file_or_folder);
void save_config(const Config& config, const std::filesystem::path& folder);

}  // namespace bmojo::model
