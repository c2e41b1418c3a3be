#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bmojo/base/file.h"
#include "bmojo/model/dtype.h"

namespace bmojo::model {

struct TensorInfo {
  std::string name;
  Dtype dtype;
  Shape shape;
  size_t begin = 0, end = 0;  // bytes, counted from the end of the header
};

// A safetensors file, mapped. Only the header is read on opening, and every rule of the format is
// checked there: sizes, offsets without gaps or overlaps, names, UTF-8. Heap use stays below four
// times the header.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::deque<TensorInfo>& tensors() const { return tensors_; }  // sorted by name
  const TensorInfo* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  std::span<std::byte> bytes(const TensorInfo& tensor) const;
  std::span<std::byte> data() const { return data_; }  // every tensor, in file order
  std::shared_ptr<base::MappedFile> mapping() const { return file_; }

 private:
  std::shared_ptr<base::MappedFile> file_;
  std::span<std::byte> data_;
  std::deque<TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
};

// What a file says its digest is (`bmojo.digest`); empty where it does not.
inline constexpr std::string_view kDigestName = "bmojo.digest";
std::string stored_digest(const SafetensorsFile& file);
// The digest of a file's tensor bytes, e.g. "xxh3-128:0123…" (32 hexadecimal digits). `progress` is
// called with bytes done.
std::string digest_of(std::span<const std::byte> data,
                      const std::function<void(size_t)>& progress = {});

// Writes one file tensor by tensor: names and shapes first, then the bytes of each in the order of
// `tensors` (begin and end are filled in here). With `digest`, metadata gains `bmojo.digest`,
// computed as the bytes pass. The file appears under its name on commit().
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorInfo> tensors,
                    std::map<std::string, std::string> metadata, bool digest = true);
  ~SafetensorsWriter();

  // The next bytes of the data section; a tensor may be written in pieces. Error past the end.
  void write(std::span<const std::byte> bytes);
  void commit();               // Error where bytes are missing
  size_t data_offset() const;  // in the file

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bmojo::model
