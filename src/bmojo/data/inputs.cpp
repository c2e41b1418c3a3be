#include "bmojo/data/inputs.h"

#include <algorithm>
#include <system_error>

#include "bmojo/base/error.h"

namespace bmojo::data {
namespace fs = std::filesystem;
namespace {

constexpr size_t kPartBytes = size_t{1} << 20;

bool is_jsonl(const fs::path& path) { return path.extension() == ".jsonl"; }
bool is_text(const fs::path& path) { return path.extension() == ".txt"; }

std::vector<fs::path> list_folder(const fs::path& folder, int64_t& num_other_files) {
  std::vector<fs::path> files;
  int64_t others = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_directory()) continue;
    if (entry.is_regular_file() && (is_text(entry.path()) || is_jsonl(entry.path())))
      files.push_back(entry.path());
    else
      ++others;
  }
  base::require(!files.empty(), "{}: folder must hold *.txt or *.jsonl files, got none of {} files",
                base::shown(folder), others);
  std::ranges::sort(files);
  num_other_files += others;
  return files;
}

}  // namespace

Inputs list_inputs(const std::vector<fs::path>& paths) {
  Inputs inputs;
  const auto add = [&](const fs::path& path) {
    inputs.files.push_back({path, is_jsonl(path)});
    inputs.num_bytes += static_cast<int64_t>(fs::file_size(path));
  };
  for (const auto& path : paths) {
    std::error_code error;
    const auto status = fs::status(path, error);
    if (fs::is_directory(status)) {
      for (const auto& file : list_folder(path, inputs.num_other_files)) add(file);
      continue;
    }
    base::require(fs::is_regular_file(status),
                  "{}: must be a text file, a JSONL file or a folder, got {}", base::shown(path),
                  fs::exists(status) ? "a device or pipe" : error.message());
    add(path);
  }
  return inputs;
}

std::string InputPart::where(std::string_view line) const {
  // Lines are counted for a message only: a part does not know how many come before it.
  const auto* start = reinterpret_cast<const char*>(file->bytes().data());
  const char* here = line.data();
  return fmt::format("{}:{}", base::shown(file->path()), 1 + std::count(start, here, '\n'));
}

InputParts::InputParts(const std::vector<InputFile>& files, const Tokenizer& tokenizer)
    : files_(files), tokenizer_(tokenizer) {}

std::optional<InputPart> InputParts::next() {
  part_.begins = part_.ends;
  if (part_.ends) {
    part_ = {};
    if (next_file_ == files_.size()) return std::nullopt;
    const auto& file = files_[next_file_++];
    part_.file = std::make_shared<const base::MappedFile>(file.path);
    part_.is_jsonl = file.is_jsonl;
    const auto bytes = part_.file->bytes();
    rest_ = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  size_t cut = rest_.size();
  if (!part_.is_jsonl)
    cut = tokenizer_.find_cut(rest_, kPartBytes);
  else if (const size_t line_end = rest_.find('\n', kPartBytes); line_end != rest_.npos)
    cut = line_end + 1;
  part_.text = rest_.substr(0, cut);
  rest_.remove_prefix(cut);
  part_.ends = rest_.empty();
  return part_;
}

}  // namespace bmojo::data
