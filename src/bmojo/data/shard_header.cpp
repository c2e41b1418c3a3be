#include "bmojo/data/shard_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string_view>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"

namespace bmojo::data {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are used as the file has them");

using Text = std::array<char, 64>;  // padded with NUL

// As it lies in the file.
struct Header {
  std::array<char, 8> magic;
  uint32_t version, width;
  uint64_t vocab_size, end_of_document, num_tokens, num_documents, num_bytes, reserved;
  Text tokenizer, tokenizer_digest, digest;
};
static_assert(sizeof(Header) == kShardHeaderBytes);
static_assert(offsetof(Header, digest) == kDigestedHeaderBytes);
static_assert(sizeof(DocumentEnd) == 16);

constexpr uint32_t kVersion = 1;
constexpr uint64_t kMaxVocab = std::numeric_limits<int32_t>::max();
constexpr uint64_t kMaxCount = std::numeric_limits<int64_t>::max();

std::string text_of(const Text& field) { return {field.begin(), std::ranges::find(field, '\0')}; }

void set_text(Text& field, std::string_view text, std::string_view what) {
  base::require(text.size() < field.size(), "shard: {} must be shorter than {} bytes, got {}", what,
                field.size(), base::in_quotes(text));
  std::ranges::copy(text, field.begin());
}

void check_fields(const Header& header, const std::string& subject) {
  base::require(header.version == kVersion, "{}: version must be {}, got {}", subject, kVersion,
                header.version);
  base::require(header.vocab_size >= 1 && header.vocab_size <= kMaxVocab,
                "{}: vocab_size must be from 1 to {}, got {}", subject, kMaxVocab,
                header.vocab_size);
  const size_t width = width_of(static_cast<int64_t>(header.vocab_size));
  base::require(header.width == width, "{}: token width must be {} for a vocabulary of {}, got {}",
                subject, width, header.vocab_size, header.width);
  base::require(header.end_of_document < header.vocab_size,
                "{}: end-of-document id must be below the vocabulary's {}, got {}", subject,
                header.vocab_size, header.end_of_document);
  base::require(header.reserved == 0, "{}: bytes 56-63 must be 0, got {}", subject,
                header.reserved);
  base::require(header.tokenizer[0] != '\0', "{}: tokenizer must have a name, got none", subject);
  base::require(header.num_documents >= 1, "{}: must hold at least one document, got none",
                subject);
  base::require(header.num_tokens >= header.num_documents,
                "{}: documents must have a token each, got {} tokens for {}", subject,
                header.num_tokens, header.num_documents);
  base::require(header.num_bytes <= kMaxCount, "{}: bytes of text must fit 63 bits, got {}",
                subject, header.num_bytes);
}

}  // namespace

ShardLayout parse_shard_header(std::span<const std::byte> file, const std::string& subject) {
  const size_t known = std::min(file.size(), kShardMagic.size());
  // An empty file has no bytes to compare, nor an address.
  base::require(
      known == 0 || std::memcmp(file.data(), kShardMagic.data(), known) == 0,
      "{}: must be a token shard, got a file of another kind; bmojo tokenize makes shards of "
      "text",
      subject);
  base::require(file.size() >= sizeof(Header),
                "{}: must be a token shard of at least {} bytes, got {}", subject, sizeof(Header),
                file.size());
  Header header;
  std::memcpy(&header, file.data(), sizeof(Header));
  check_fields(header, subject);

  // What the counts need is compared by division: they may be any 64-bit number.
  const size_t room = file.size() - sizeof(Header);
  const size_t most_documents = room / sizeof(DocumentEnd);
  ShardLayout layout;
  layout.width = header.width;
  bool fits = header.num_tokens <= room / header.width && header.num_documents <= most_documents;
  if (fits) {
    layout.token_bytes = header.num_tokens * header.width;
    layout.index_offset = sizeof(Header) + padded(layout.token_bytes);
    fits = layout.index_offset + header.num_documents * sizeof(DocumentEnd) == file.size();
  }
  base::require(
      fits,
      "{}: must be of the right length for {} tokens and {} documents, got {} bytes; the file "
      "is damaged or cut off",
      subject, header.num_tokens, header.num_documents, file.size());
  layout.info = {.vocab_size = static_cast<int64_t>(header.vocab_size),
                 .end_of_document = static_cast<int64_t>(header.end_of_document),
                 .num_tokens = static_cast<int64_t>(header.num_tokens),
                 .num_documents = static_cast<int64_t>(header.num_documents),
                 .num_bytes = static_cast<int64_t>(header.num_bytes),
                 .tokenizer = text_of(header.tokenizer),
                 .tokenizer_digest = text_of(header.tokenizer_digest),
                 .digest = text_of(header.digest)};
  return layout;
}

SealedHeader seal_shard_header(const ShardInfo& info, base::Digest& digest) {
  Header header{};
  header.magic = kShardMagic;
  header.version = kVersion;
  header.width = static_cast<uint32_t>(width_of(info.vocab_size));
  header.vocab_size = static_cast<uint64_t>(info.vocab_size);
  header.end_of_document = static_cast<uint64_t>(info.end_of_document);
  header.num_tokens = static_cast<uint64_t>(info.num_tokens);
  header.num_documents = static_cast<uint64_t>(info.num_documents);
  header.num_bytes = static_cast<uint64_t>(info.num_bytes);
  set_text(header.tokenizer, info.tokenizer, "name of the tokenizer");
  set_text(header.tokenizer_digest, info.tokenizer_digest, "digest of the tokenizer");

  const auto bytes = std::as_bytes(std::span(&header, 1));
  digest.update(bytes.first(kDigestedHeaderBytes));
  set_text(header.digest, digest.text(), "digest");
  return {std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
          text_of(header.digest)};
}

}  // namespace bmojo::data
