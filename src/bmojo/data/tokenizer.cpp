#include "bmojo/data/tokenizer.h"

#include <algorithm>
#include <array>
#include <system_error>
#include <type_traits>
#include <utility>

#include "bmojo/base/digest.h"
#include "bmojo/base/error.h"
#include "bmojo/base/input.h"
#include "bmojo/base/printable.h"
#include "bmojo/data/byte_level.h"
#include "bmojo/data/pieces.h"
#include "bmojo/data/sentencepiece_model.h"
#include "bmojo/data/tokenizer_json.h"

namespace bmojo::data {
namespace fs = std::filesystem;
namespace {

class Bytes final : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids(text.size());
    std::ranges::transform(text, ids.begin(), [](char c) { return static_cast<uint8_t>(c); });
    return ids;
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      base::require(id >= 0 && id <= kEnd, "decode: token id must be from 0 to {}, got {}", kEnd,
                    id);
      if (id != kEnd) text += static_cast<char>(id);
    }
    return text;
  }
  int64_t vocab_size() const override { return kEnd + 1; }
  int32_t end_of_document() const override { return kEnd; }
  const std::string& name() const override { return name_; }
  size_t find_cut(std::string_view text, size_t from) const override {
    return std::min(std::max<size_t>(from, 1), text.size());
  }
  std::vector<int32_t> encode_rest(std::string_view text) const override { return encode(text); }

 private:
  static constexpr int32_t kEnd = 256;
  const std::string name_ = "bytes";
};

class SentencePiece final : public Tokenizer {
 public:
  SentencePiece(std::string model, const std::string& subject);

  std::vector<int32_t> encode(std::string_view text) const override {
    return encode_parts(text, /*is_rest=*/false);
  }
  std::vector<int32_t> encode_rest(std::string_view text) const override {
    base::require(cuttable_ && text.starts_with('\n'),
                  "encode_rest: text must begin at a cut, got {}", base::in_quotes(text));
    return encode_parts(text, /*is_rest=*/true);
  }
  size_t find_cut(std::string_view text, size_t from) const override {
    const size_t cut = cuttable_ ? text.find('\n', std::max<size_t>(from, 1)) : text.npos;
    return std::min(cut, text.size());
  }
  std::string decode(std::span<const int32_t> ids) const override;
  std::string decode_behind(int32_t id) const override;

  int64_t vocab_size() const override { return pieces_->size(); }
  int32_t end_of_document() const override { return end_; }
  const std::string& name() const override { return name_; }
  std::string digest() const override { return digest_; }
  std::string_view model() const override { return model_; }

 private:
  bool is_cuttable() const;
  std::vector<int32_t> encode_parts(std::string_view text, bool is_rest) const;
  std::vector<int32_t> encode_part(std::string_view text) const;

  const std::string name_ = "sentencepiece";
  std::string model_, digest_;
  std::unique_ptr<Pieces> pieces_ = make_pieces();
  int32_t end_ = -1;
  bool dummy_prefix_ = false, cuttable_ = false;
};

SentencePiece::SentencePiece(std::string model, const std::string& subject)
    : model_(std::move(model)) {
  const auto other = base::mix_up(model_);
  base::require(other.empty(), "{}: must be a SentencePiece model, got {}", subject, other);
  // Without the library's own words, which name its source files.
  base::require(pieces_->load(model_).empty(),
                "{}: must be a SentencePiece model, got a file of another kind or a damaged one",
                subject);
  end_ = pieces_->end_of_sentence();
  base::require(end_ >= 0, "{}: must have an end-of-sentence piece to end documents with, got none",
                subject);
  digest_ = base::digest_of_text(model_);
  const auto spec = read_sentencepiece_spec(model_);
  dummy_prefix_ = spec && spec->dummy_prefix;
  cuttable_ = spec && spec->merges_locally() && is_cuttable();
}

// A line break that no piece holds is never merged with a neighbour, so what lies before it and
// what begins with it are segmented as if alone. The blank that the library puts before every text
// is then the first id of a rest, alone too, and is dropped.
bool SentencePiece::is_cuttable() const {
  for (int id = 0; id < pieces_->size(); ++id) {
    // Unused pieces are split again by what was seen anywhere in the text.
    if (pieces_->is_unused(id) || pieces_->piece(id).find('\n') != std::string::npos) return false;
  }
  const auto ids = encode_part("\n");
  const bool alone = ids.size() == (dummy_prefix_ ? 2u : 1u) && pieces_->is_byte(ids.back());
  return alone && (!dummy_prefix_ || pieces_->piece(ids.front()) == "\u2581");
}

std::vector<int32_t> SentencePiece::encode_parts(std::string_view text, bool is_rest) const {
  // The library takes about a hundred bytes of memory for each byte of text, and its queue of
  // merges slows down as it outgrows the caches.
  constexpr size_t kPart = 4096;
  std::vector<int32_t> ids;
  while (!text.empty()) {
    const auto part = text.substr(0, find_cut(text, kPart));
    const auto part_ids = encode_part(part);
    ids.insert(ids.end(), part_ids.begin() + (is_rest && dummy_prefix_ ? 1 : 0), part_ids.end());
    text.remove_prefix(part.size());
    is_rest = true;
  }
  return ids;
}

std::vector<int32_t> SentencePiece::encode_part(std::string_view text) const {
  static_assert(std::is_same_v<int, int32_t>);
  constexpr size_t kMost = size_t{1} << 29;  // the library counts in int, up to three for a byte
  base::require(text.size() <= kMost,
                "text: must have a place to cut it within {} bytes for this tokenizer, got none",
                kMost);
  std::vector<int> ids;
  const auto failure = pieces_->encode(text, ids);
  if (!failure.empty())
    throw base::RunError(
        fmt::format("sentencepiece: encoding failed: {}", base::printable(failure, 120)));
  return ids;
}

std::string SentencePiece::decode(std::span<const int32_t> ids) const {
  const int64_t last = vocab_size() - 1;
  for (const int32_t id : ids)
    base::require(id >= 0 && id <= last, "decode: token id must be from 0 to {}, got {}", last, id);
  std::string text;
  const auto failure = pieces_->decode(std::vector<int>(ids.begin(), ids.end()), text);
  if (!failure.empty())
    throw base::RunError(
        fmt::format("sentencepiece: decoding failed: {}", base::printable(failure, 120)));
  return text;
}

// The blank that begins a text is dropped by the library, so a piece is read behind itself.
std::string SentencePiece::decode_behind(int32_t id) const {
  const auto first = decode({&id, 1});
  if (pieces_->is_byte(id))
    return std::string(1,
                       static_cast<char>(std::stoi(pieces_->piece(id).substr(3, 2), nullptr, 16)));
  return decode(std::array{id, id}).substr(first.size());
}

constexpr const char* kVocabFile = "vocab.json";
constexpr const char* kMergesFile = "merges.txt";

std::string read_pair(const fs::path& folder) {
  const auto vocab = folder / kVocabFile, merges = folder / kMergesFile;
  for (const auto& path : {vocab, merges})
    base::require(fs::exists(path), "tokenizer: {} and {} must lie side by side, got no {}",
                  kVocabFile, kMergesFile, base::in_quotes(path.string()));
  return tokenizer_json_of(base::read_text(vocab), base::printable(vocab.string()),
                           base::read_text(merges), base::printable(merges.string()));
}

}  // namespace

std::string tokenizer_file_name(std::string_view name) {
  return name == "bpe" ? kByteLevelFile : name == "bytes" ? "" : kSentencePieceFile;
}

std::unique_ptr<Tokenizer> tokenizer_of(const std::filesystem::path& folder, int64_t vocab_size) {
  for (const auto* name : {kByteLevelFile, kSentencePieceFile, "vocab.json"})
    if (std::filesystem::exists(folder / name)) return load_tokenizer((folder / name).string());
  auto bytes = load_tokenizer("bytes");
  if (bytes->vocab_size() != vocab_size) return nullptr;
  return bytes;
}

std::map<std::string, std::string> tokenizer_digests(const fs::path& folder,
                                                     std::string_view name) {
  std::map<std::string, std::string> digests;
  const auto add = [&](const char* file) {
    if (fs::exists(folder / file))
      digests[file] = base::digest_of_text(base::read_text(folder / file));
  };
  if (name == "bpe") {
    add(kByteLevelFile);
    if (fs::exists(folder / kVocabFile) && fs::exists(folder / kMergesFile))
      digests[kVocabFile] = base::digest_of_text(read_pair(folder));
  }
  if (digests.empty()) add(kSentencePieceFile);
  return digests;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name_or_file) {
  if (name_or_file == "bytes") return std::make_unique<Bytes>();
  std::error_code ignored;
  base::require(
      fs::exists(name_or_file, ignored),
      "tokenizer: must be bytes, tokenizer.json, tokenizer.model or vocab.json, got {}, which is "
      "no file",
      base::in_quotes(name_or_file));
  const fs::path path = name_or_file;
  const auto subject = base::printable(name_or_file);
  if (path.filename() == kVocabFile || path.filename() == kMergesFile)
    return make_byte_level(read_pair(path.parent_path()), subject);
  auto text = base::read_text(path);
  // A SentencePiece model is no JSON: its first byte says that a piece follows.
  if (path.extension() == ".json" || text.starts_with('{'))
    return make_byte_level(std::move(text), subject);
  return std::make_unique<SentencePiece>(std::move(text), subject);
}

}  // namespace bmojo::data
