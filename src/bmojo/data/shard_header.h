#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "bmojo/base/digest.h"
#include "bmojo/data/shards.h"

namespace bmojo::data {

inline constexpr std::array<char, 8> kShardMagic = {'B', 'M', 'O', 'J', 'O', 'T', 'O', 'K'};
inline constexpr size_t kShardHeaderBytes = 256;
inline constexpr size_t kDigestedHeaderBytes = 192;  // what comes before the digest itself
inline constexpr size_t kShardAlignment = 64;        // of a section

// Bytes of a token id.
constexpr size_t width_of(int64_t vocab_size) { return vocab_size <= 65536 ? 2 : 4; }
// Where the section behind one of `bytes` begins.
constexpr size_t padded(size_t bytes) {
  return bytes + (kShardAlignment - bytes % kShardAlignment) % kShardAlignment;
}

struct ShardLayout {
  ShardInfo info;
  size_t width = 0, token_bytes = 0, index_offset = 0;
};

// Error where a field is impossible, or the file is not of the size its header says.
ShardLayout parse_shard_header(std::span<const std::byte> file, const std::string& subject);

struct SealedHeader {
  std::string bytes;
  std::string digest;
};
// `digest` has seen the file behind the header. info.digest is not read.
SealedHeader seal_shard_header(const ShardInfo& info, base::Digest& digest);

}  // namespace bmojo::data
