#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace bmojo::data {

struct TokenizeOptions {
  std::string tokenizer;  // as load_tokenizer() takes it
  std::vector<std::filesystem::path> inputs;
  std::filesystem::path out;   // new or empty
  std::string field = "text";  // of a line of JSONL
  // A shard ends with the document that brings it to so many.
  int64_t shard_tokens = int64_t{1} << 28;
  int64_t num_threads = 1;
};

struct TokenizeSummary {
  std::string tokenizer;
  int64_t vocab_size = 0;
  int64_t num_documents = 0, num_tokens = 0, num_shards = 0;
  int64_t num_bytes = 0;            // of the documents' text
  int64_t num_empty_documents = 0;  // left out
  int64_t num_other_files = 0;      // of folders, left out
};

// Texts to a folder of shards and the tokenizer's file. The bytes written are the same for any
// number of threads. `progress` is called by the calling thread several times a second, with bytes
// of input done and their total; what it throws ends the work, and nothing is left behind.
TokenizeSummary tokenize(const TokenizeOptions& options,
                         const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace bmojo::data
