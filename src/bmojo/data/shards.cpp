#include "bmojo/data/shards.h"

#include <algorithm>
#include <cstring>
#include <system_error>

#include "bmojo/base/digest.h"
#include "bmojo/base/error.h"
#include "bmojo/base/input.h"
#include "bmojo/base/printable.h"
#include "bmojo/data/shard_header.h"

namespace bmojo::data {
namespace fs = std::filesystem;
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;  // written at once
constexpr size_t kStepBytes = size_t{16} << 20;   // between two calls of progress

// The last entry of `firsts` that is at most i: the shard that holds it.
size_t shard_of(const std::vector<int64_t>& firsts, int64_t i) {
  return static_cast<size_t>(std::ranges::upper_bound(firsts, i) - firsts.begin()) - 1;
}

void check_index(std::span<const DocumentEnd> ends, const ShardInfo& info,
                 const std::string& subject) {
  DocumentEnd before{0, 0};
  for (size_t i = 0; i < ends.size(); ++i) {
    base::require(ends[i].tokens > before.tokens && ends[i].bytes >= before.bytes,
                  "{}: index must increase, got document {} from ({}, {}) to ({}, {})", subject, i,
                  before.tokens, before.bytes, ends[i].tokens, ends[i].bytes);
    before = ends[i];
  }
  base::require(before.tokens == static_cast<uint64_t>(info.num_tokens) &&
                    before.bytes == static_cast<uint64_t>(info.num_bytes),
                "{}: index must end at {} tokens and {} bytes of text, got {} and {}", subject,
                info.num_tokens, info.num_bytes, before.tokens, before.bytes);
}

}  // namespace

TokenShard::TokenShard(const fs::path& path) : file_(path) {
  const auto subject = base::shown(path);
  const auto bytes = file_.bytes();
  const auto header = parse_shard_header(bytes, subject);
  info_ = header.info;
  width_ = header.width;
  tokens_ = bytes.subspan(kShardHeaderBytes, header.token_bytes);
  // Mapped at a page, and the section begins at a multiple of 64.
  const auto* ends = reinterpret_cast<const DocumentEnd*>(bytes.data() + header.index_offset);
  ends_ = {ends, static_cast<size_t>(info_.num_documents)};
  check_index(ends_, info_, subject);
}

template <typename Id>
void TokenShard::read_as(int64_t begin, std::span<int64_t> out) const {
  const auto* ids = reinterpret_cast<const Id*>(tokens_.data()) + begin;
  Id largest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = ids[i];
    largest = std::max(largest, ids[i]);
  }
  if (largest < info_.vocab_size) return;
  const auto at = std::ranges::find(out, int64_t{largest}) - out.begin();
  base::fail(
      "{}: token ids must be below the vocabulary's {}, got {} at token {}; the file is damaged",
      base::shown(path()), info_.vocab_size, largest, begin + at);
}

void TokenShard::read(int64_t begin, std::span<int64_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  base::require(begin >= 0 && begin <= info_.num_tokens && count <= info_.num_tokens - begin,
                "{}: tokens must be read within the {} there are, got {} from {}",
                base::shown(path()), info_.num_tokens, count, begin);
  width_ == sizeof(uint16_t) ? read_as<uint16_t>(begin, out) : read_as<uint32_t>(begin, out);
}

void TokenShard::verify(const std::function<void(int64_t)>& progress) const {
  const auto bytes = file_.bytes();
  base::Digest digest;
  for (size_t done = kShardHeaderBytes; done < bytes.size();) {
    const auto piece = bytes.subspan(done, std::min(kStepBytes, bytes.size() - done));
    digest.update(piece);
    done += piece.size();
    if (progress) progress(static_cast<int64_t>(done));
  }
  digest.update(bytes.first(kDigestedHeaderBytes));
  base::require(digest.text() == info_.digest, "{}: digest must be {}, got {}; the file is damaged",
                base::shown(path()), base::printable(info_.digest), digest.text());

  std::vector<int64_t> ids(size_t{1} << 16);
  for (int64_t begin = 0; begin < info_.num_tokens; begin += std::ssize(ids)) {
    const auto count = std::min<int64_t>(std::ssize(ids), info_.num_tokens - begin);
    read(begin, std::span(ids).first(static_cast<size_t>(count)));
  }
  for (const auto& end : ends_) {
    int64_t last = 0;
    read(static_cast<int64_t>(end.tokens) - 1, {&last, 1});
    base::require(last == info_.end_of_document,
                  "{}: token {} must be the end of a document, {}, got {}", base::shown(path()),
                  end.tokens - 1, info_.end_of_document, last);
  }
}

struct ShardWriter::Impl {
  Impl(const fs::path& path, const Tokenizer& tokenizer) : subject(base::shown(path)), file(path) {
    info.vocab_size = tokenizer.vocab_size();
    info.end_of_document = tokenizer.end_of_document();
    info.tokenizer = tokenizer.name();
    info.tokenizer_digest = tokenizer.digest();
    file.write(std::string(kShardHeaderBytes, '\0'));  // its place
  }

  template <typename Id>
  void add(std::span<const int32_t> ids) {
    const size_t used = buffer.size();
    buffer.resize(used + ids.size() * sizeof(Id));
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto id = static_cast<Id>(ids[i]);
      std::memcpy(buffer.data() + used + i * sizeof(Id), &id, sizeof(Id));
    }
    info.num_tokens += std::ssize(ids);
    if (buffer.size() >= kBufferBytes) flush();
  }
  void add(std::span<const int32_t> ids) {
    width_of(info.vocab_size) == sizeof(uint16_t) ? add<uint16_t>(ids) : add<uint32_t>(ids);
  }
  void put(std::span<const std::byte> bytes) {
    file.write(bytes);
    digest.update(bytes);
  }
  void flush() {
    put(buffer);
    buffer.clear();
  }
  int64_t tokens_ended() const {
    return ends.empty() ? 0 : static_cast<int64_t>(ends.back().tokens);
  }

  std::string subject;
  base::AtomicFile file;
  ShardInfo info;
  base::Digest digest;
  std::vector<std::byte> buffer;
  std::vector<DocumentEnd> ends;
};

ShardWriter::ShardWriter(const fs::path& path, const Tokenizer& tokenizer)
    : impl_(std::make_unique<Impl>(path, tokenizer)) {}

ShardWriter::~ShardWriter() = default;

void ShardWriter::write(std::span<const int32_t> ids, int64_t num_bytes) {
  Impl& impl = *impl_;
  base::require(num_bytes >= 0, "{}: bytes of text must be at least 0, got {}", impl.subject,
                num_bytes);
  if (!ids.empty()) {
    const auto [low, high] = std::ranges::minmax(ids);
    base::require(low >= 0 && high < impl.info.vocab_size,
                  "{}: token ids must be from 0 to {}, got {}", impl.subject,
                  impl.info.vocab_size - 1, low < 0 ? low : high);
  }
  impl.add(ids);
  impl.info.num_bytes += num_bytes;
}

void ShardWriter::end_document() {
  Impl& impl = *impl_;
  base::require(impl.info.num_tokens > impl.tokens_ended(),
                "{}: a document must have tokens, got none", impl.subject);
  const auto mark = static_cast<int32_t>(impl.info.end_of_document);
  impl.add({&mark, 1});
  impl.ends.push_back(
      {static_cast<uint64_t>(impl.info.num_tokens), static_cast<uint64_t>(impl.info.num_bytes)});
}

int64_t ShardWriter::num_tokens() const { return impl_->info.num_tokens; }

ShardInfo ShardWriter::commit() {
  Impl& impl = *impl_;
  base::require(!impl.ends.empty() && impl.info.num_tokens == impl.tokens_ended(),
                "{}: documents must be ended before commit, got {}", impl.subject,
                impl.ends.empty() ? "none" : "one that is open");
  impl.info.num_documents = std::ssize(impl.ends);
  const size_t token_bytes =
      static_cast<size_t>(impl.info.num_tokens) * width_of(impl.info.vocab_size);
  impl.buffer.resize(impl.buffer.size() + padded(token_bytes) - token_bytes);
  impl.flush();
  impl.put(std::as_bytes(std::span(impl.ends)));

  const auto sealed = seal_shard_header(impl.info, impl.digest);
  impl.info.digest = sealed.digest;
  impl.file.overwrite(0, sealed.bytes);
  impl.file.commit();
  return impl.info;
}

TokenData::TokenData(const std::vector<fs::path>& paths) {
  base::require(!paths.empty(), "data: at least one shard or folder of shards is needed, got none");
  for (const auto& path : paths) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
      add(path);
      continue;
    }
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path))
      if (entry.path().extension() == kShardExtension) files.push_back(entry.path());
    base::require(!files.empty(),
                  "{}: folder must hold *{} shards, got none; bmojo tokenize writes them",
                  base::shown(path), kShardExtension);
    std::ranges::sort(files);
    for (const auto& file : files) add(file);
  }
  base::Digest digest;
  for (const auto& shard : shards_) digest.update(shard->info().digest);
  digest_ = digest.text();
}

void TokenData::add(const fs::path& path) {
  shards_.push_back(std::make_unique<TokenShard>(path));
  const auto& first = info();
  const auto& next = shards_.back()->info();
  base::require(
      next.tokenizer == first.tokenizer && next.tokenizer_digest == first.tokenizer_digest &&
          next.vocab_size == first.vocab_size && next.end_of_document == first.end_of_document,
      "{}: tokenizer must be that of {}, {} {} of {} ids, got {} {} of {}", base::shown(path),
      base::shown(shards_.front()->path()), base::printable(first.tokenizer),
      base::printable(first.tokenizer_digest), first.vocab_size, base::printable(next.tokenizer),
      base::printable(next.tokenizer_digest), next.vocab_size);
  const auto append = [&](std::vector<int64_t>& firsts, int64_t count) {
    int64_t sum = 0;
    base::require(!__builtin_add_overflow(firsts.back(), count, &sum),
                  "{}: tokens, documents and bytes of all shards must fit 63 bits, got more",
                  base::shown(path));
    firsts.push_back(sum);
  };
  append(first_token_, next.num_tokens);
  append(first_document_, next.num_documents);
  append(first_byte_, next.num_bytes);
}

std::pair<int64_t, int64_t> TokenData::document(int64_t i) const {
  base::require(i >= 0 && i < num_documents(), "data: document must be from 0 to {}, got {}",
                num_documents() - 1, i);
  const size_t shard = shard_of(first_document_, i);
  const auto ends = shards_[shard]->ends();
  const auto at = static_cast<size_t>(i - first_document_[shard]);
  const auto begin = at == 0 ? 0 : static_cast<int64_t>(ends[at - 1].tokens);
  return {first_token_[shard] + begin, first_token_[shard] + static_cast<int64_t>(ends[at].tokens)};
}

int64_t TokenData::bytes_until(int64_t document) const {
  base::require(document >= 0 && document <= num_documents(),
                "data: document must be from 0 to {}, got {}", num_documents(), document);
  if (document == num_documents()) return num_bytes();
  const size_t shard = shard_of(first_document_, document);
  const auto at = static_cast<size_t>(document - first_document_[shard]);
  const auto within = at == 0 ? 0 : static_cast<int64_t>(shards_[shard]->ends()[at - 1].bytes);
  return first_byte_[shard] + within;
}

void TokenData::read(int64_t begin, std::span<int64_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  base::require(begin >= 0 && begin <= num_tokens() && count <= num_tokens() - begin,
                "data: tokens must be read within the {} there are, got {} from {}", num_tokens(),
                count, begin);
  while (!out.empty()) {
    const size_t shard = shard_of(first_token_, begin);
    const auto part =
        out.first(std::min(out.size(), static_cast<size_t>(first_token_[shard + 1] - begin)));
    shards_[shard]->read(begin - first_token_[shard], part);
    begin += std::ssize(part);
    out = out.subspan(part.size());
  }
}

fs::path TokenData::tokenizer_file() const {
  const auto name = tokenizer_file_name(tokenizer_name());
  if (tokenizer_digest().empty() || name.empty()) return {};
  std::error_code ignored;
  for (const auto& shard : shards_) {
    auto file = shard->path().parent_path() / name;
    if (fs::is_regular_file(file, ignored)) return file;
  }
  return {};
}

std::string TokenData::tokenizer_text() const {
  const auto file = tokenizer_file();
  if (file.empty()) return "";
  auto text = base::read_text(file);
  const auto digest = base::digest_of_text(text);
  base::require(digest == tokenizer_digest(),
                "{}: digest must be {}, that of the shards' tokenizer, got {}", base::shown(file),
                base::printable(tokenizer_digest()), digest);
  return text;
}

void TokenData::verify(const std::function<void(int64_t, int64_t)>& progress) const {
  int64_t total = 0, before = 0;
  for (const auto& shard : shards_) total += shard->num_file_bytes();
  for (const auto& shard : shards_) {
    shard->verify([&](int64_t done) {
      if (progress) progress(before + done, total);
    });
    before += shard->num_file_bytes();
  }
  tokenizer_text();
}

bool is_token_data(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    for (const auto& entry : fs::directory_iterator(path, error))
      if (entry.path().extension() == kShardExtension) return true;
    return false;
  }
  if (path.extension() == kShardExtension) return true;
  if (!fs::is_regular_file(path, error)) return false;
  const base::MappedFile file(path);
  const auto bytes = file.bytes();
  return bytes.size() >= kShardMagic.size() &&
         std::memcmp(bytes.data(), kShardMagic.data(), kShardMagic.size()) == 0;
}

}  // namespace bmojo::data
