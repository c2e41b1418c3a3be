#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bmojo/base/file.h"
#include "bmojo/data/tokenizer.h"

namespace bmojo::data {

// A data set is a folder of shards. docs/shards.md describes the file byte by byte.
inline constexpr const char* kShardExtension = ".tokens";

// What a shard's header says.
struct ShardInfo {
  int64_t vocab_size = 0, end_of_document = 0;
  int64_t num_tokens = 0, num_documents = 0;
  int64_t num_bytes = 0;  // of text
  std::string tokenizer, tokenizer_digest;
  std::string digest;  // of the whole file without itself
};

// Where a document ends, counted from the shard's beginning; as the file has it.
struct DocumentEnd {
  uint64_t tokens, bytes;  // bytes of text
};

// One file, mapped. Opening reads the header and the index, and refuses what does not fit together.
// Token ids are looked at when they are read.
class TokenShard {
 public:
  explicit TokenShard(const std::filesystem::path& path);

  const ShardInfo& info() const { return info_; }
  const std::filesystem::path& path() const { return file_.path(); }
  int64_t num_file_bytes() const { return static_cast<int64_t>(file_.bytes().size()); }
  std::span<const DocumentEnd> ends() const { return ends_; }

  // Tokens [begin, begin + out.size()). Error for an id outside the vocabulary.
  void read(int64_t begin, std::span<int64_t> out) const;
  // Error where the bytes are not those of the digest, an id is outside the vocabulary, or a
  // document does not end with its mark. `progress` is called with the file's bytes done.
  void verify(const std::function<void(int64_t done)>& progress = {}) const;

 private:
  template <typename Id>
  void read_as(int64_t begin, std::span<int64_t> out) const;

  base::MappedFile file_;
  ShardInfo info_;
  size_t width_ = 0;             // bytes of a token id
  std::span<std::byte> tokens_;  // num_tokens ids
  std::span<const DocumentEnd> ends_;
};

// Writes one shard. The file appears under its name on commit().
class ShardWriter {
 public:
  ShardWriter(const std::filesystem::path& path, const Tokenizer& tokenizer);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  // More of the open document: ids, and the bytes of text they stand for.
  void write(std::span<const int32_t> ids, int64_t num_bytes);
  // Adds the end-of-document token. Error where the document has no ids.
  void end_document();
  int64_t num_tokens() const;
  // Error where a document is open, or there is none.
  ShardInfo commit();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Several shards as one list of documents, in the order given; a folder's by name.
class TokenData {
 public:
  // Shard files, or folders of them. Error where one does not agree with the first in its
  // tokenizer.
  explicit TokenData(const std::vector<std::filesystem::path>& paths);

  int64_t num_tokens() const { return first_token_.back(); }
  int64_t num_documents() const { return first_document_.back(); }
  int64_t num_bytes() const { return first_byte_.back(); }  // of text
  int64_t vocab_size() const { return info().vocab_size; }
  int64_t end_of_document() const { return info().end_of_document; }

  // Tokens [begin, end) of document i; the last of them is end_of_document().
  std::pair<int64_t, int64_t> document(int64_t i) const;
  // Text bytes of the documents before this one.
  int64_t bytes_until(int64_t document) const;
  // Tokens [begin, begin + out.size()), across shards. Error for an id outside the vocabulary.
  void read(int64_t begin, std::span<int64_t> out) const;

  const std::string& digest() const { return digest_; }  // of the digests the shards store
  const std::string& tokenizer_name() const { return info().tokenizer; }
  const std::string& tokenizer_digest() const { return info().tokenizer_digest; }
  // The tokenizer's file beside the first shard that has one; empty for bytes, and where there is
  // none.
  std::filesystem::path tokenizer_file() const;
  // What that file holds; Error where its digest is not the shards'.
  std::string tokenizer_text() const;

  std::span<const std::unique_ptr<TokenShard>> shards() const { return shards_; }
  // TokenShard::verify() on each, and the tokenizer's file against its digest.
  void verify(const std::function<void(int64_t done, int64_t total)>& progress = {}) const;

 private:
  const ShardInfo& info() const { return shards_.front()->info(); }
  void add(const std::filesystem::path& path);

  std::vector<std::unique_ptr<TokenShard>> shards_;
  // Of shard i; the totals are last.
  std::vector<int64_t> first_token_{0}, first_document_{0}, first_byte_{0};
  std::string digest_;
};

// Whether `path` is a shard, or a folder with one in it.
bool is_token_data(const std::filesystem::path& path);

}  // namespace bmojo::data
