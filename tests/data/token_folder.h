#pragma once

#include <filesystem>
#include <vector>

#include "bmojo/base/random.h"
#include "bmojo/data/shards.h"

namespace bmojo::test {

inline constexpr int64_t kEnd = 256;  // the end of a document, of the `bytes` tokenizer

// A folder with one shard of the documents given, by their bytes.
inline std::filesystem::path write_documents(const std::filesystem::path& folder,
                                             const std::vector<std::vector<int32_t>>& documents) {
  std::filesystem::create_directories(folder);
  data::ShardWriter writer(folder / "0.tokens", *data::load_tokenizer("bytes"));
  for (const auto& ids : documents) {
    writer.write(ids, std::ssize(ids));
    writer.end_document();
  }
  writer.commit();
  return folder;
}

// Documents of these lengths whose ids count upwards, from 0 on.
inline std::filesystem::path write_tokens(const std::filesystem::path& folder,
                                          const std::vector<int64_t>& lengths) {
  std::vector<std::vector<int32_t>> documents;
  int32_t next = 0;
  for (const auto length : lengths) {
    documents.emplace_back();
    for (int64_t i = 0; i < length; ++i) documents.back().push_back(next++ % 256);
  }
  return write_documents(folder, documents);
}

// `count` tokens below `vocabulary`, in as many documents.
inline std::filesystem::path write_random_tokens(const std::filesystem::path& folder, int64_t count,
                                                 uint64_t vocabulary, int64_t num_documents) {
  base::Random random({1});
  std::vector<std::vector<int32_t>> documents(num_documents);
  for (int64_t i = 0; i < count; ++i)
    documents[i * num_documents / count].push_back(static_cast<int32_t>(random.below(vocabulary)));
  return write_documents(folder, documents);
}

}  // namespace bmojo::test
