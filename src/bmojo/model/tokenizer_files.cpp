#include "bmojo/model/tokenizer_files.h"

#include "bmojo/base/file.h"
#include "bmojo/base/input.h"

namespace bmojo::model {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;

bool is_tokenizer_file(const std::string& name) {
  return name.starts_with("tokenizer.") || name == kTokenizerConfigFile ||
         name == "special_tokens_map.json" || name == "vocab.json" || name == "merges.txt" ||
         name == kChatTemplateFile;
}

}  // namespace

TokenizerFiles read_tokenizer_files(const std::filesystem::path& folder) {
  TokenizerFiles files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto name = entry.path().filename().string();
    if (is_tokenizer_file(name) && entry.is_regular_file())
      files[name] = base::read_text(entry.path(), kMostBytes);
  }
  return files;
}

void copy_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (const auto& [name, text] : read_tokenizer_files(from)) base::write_text(to / name, text);
}

}  // namespace bmojo::model
