#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bmojo/base/file.h"
#include "bmojo/data/tokenizer.h"

namespace bmojo::data {

struct InputFile {
  std::filesystem::path path;
  bool is_jsonl = false;  // a document a line, otherwise the file is one
};

struct Inputs {
  std::vector<InputFile> files;
  int64_t num_bytes = 0;        // of all files
  int64_t num_other_files = 0;  // in folders, neither *.txt nor *.jsonl
};

// Files as they are given; of folders every *.txt and *.jsonl below, sorted by path. Links to
// folders are not followed.
Inputs list_inputs(const std::vector<std::filesystem::path>& paths);

// A stretch of a file for one worker: whole lines of JSONL, or a document's text between two cuts.
struct InputPart {
  std::shared_ptr<const base::MappedFile> file;
  bool is_jsonl = false;
  std::string_view text;
  bool begins = true, ends = true;  // of text: the document's first, last part

  // "FILE:LINE" of a place in the text, for messages.
  std::string where(std::string_view line) const;
};

// The files cut into parts, in order. Files are mapped one at a time, and each for as long as one
// of its parts is in use.
class InputParts {
 public:
  InputParts(const std::vector<InputFile>& files, const Tokenizer& tokenizer);

  // Nothing at the end. Error where a file cannot be read.
  std::optional<InputPart> next();

 private:
  const std::vector<InputFile>& files_;
  const Tokenizer& tokenizer_;
  size_t next_file_ = 0;
  InputPart part_;         // the last one
  std::string_view rest_;  // of its file
};

}  // namespace bmojo::data
