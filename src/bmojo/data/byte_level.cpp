#include "bmojo/data/byte_level.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bmojo/base/digest.h"
#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"
#include "bmojo/data/added_tokens.h"
#include "bmojo/data/bpe.h"
#include "bmojo/data/nfc.h"
#include "bmojo/data/splitter.h"
#include "bmojo/data/tokenizer_json.h"
#include "bmojo/data/unicode.h"

namespace bmojo::data {
namespace {

using ByteOf = std::unordered_map<uint32_t, uint8_t>;  // by the character that stands for it

// The bytes that a token's characters stand for; nothing where one stands for none.
std::optional<std::string> bytes_of(std::string_view token, const ByteOf& byte_of) {
  std::string bytes;
  for (const char *p = token.data(), *end = p + token.size(); p < end;) {
    const auto [code, size] = character_at(p);
    const auto byte = byte_of.find(code);
    if (byte == byte_of.end()) return std::nullopt;
    bytes += static_cast<char>(byte->second);
    p += size;
  }
  return bytes;
}

class ByteLevel final : public Tokenizer {
 public:
  ByteLevel(std::string json, const std::string& subject)
      : ByteLevel(read_tokenizer_json(json, subject), subject) {
    digest_ = base::digest_of_text(json);
    json_ = std::move(json);
  }

  std::vector<int32_t> encode(std::string_view text) const override { return encode(text, all_); }
  std::vector<int32_t> encode_ordinary(std::string_view text) const override {
    return encode(text, unspecial_);
  }
  int32_t special_id(std::string_view text) const override {
    const auto found = special_ids_.find(std::string(text));
    return found == special_ids_.end() ? -1 : found->second;
  }
  std::vector<int32_t> encode_rest(std::string_view text) const override {
    base::require(cuttable_ && is_cut_before(text.empty() ? '\0' : text.front()),
                  "encode_rest: text must begin at a cut, got {}", base::in_quotes(text));
    return encode(text);
  }
  size_t find_cut(std::string_view text, size_t from) const override;
  std::string decode(std::span<const int32_t> ids) const override;

  int64_t vocab_size() const override { return std::ssize(texts_); }
  int32_t end_of_document() const override { return end_; }
  const std::string& name() const override { return name_; }
  std::string digest() const override { return digest_; }
  std::string_view model() const override { return json_; }

 private:
  struct Work {
    Bpe::Cache words;
    std::string normalized;
  };
  struct Added {
    AddedTokens raw, normalized;  // looked for before the normaliser, and behind it
  };

  ByteLevel(ByteLevelSpec spec, const std::string& subject);
  void read_added(const ByteLevelSpec& spec, const std::string& subject);
  std::vector<int32_t> encode(std::string_view text, const Added& added) const;
  static bool is_cut_before(char c) { return c == ' ' || c == '\n'; }
  bool is_cut_behind(std::string_view text) const;
  void encode_words(std::string_view text, Work& work, std::vector<int32_t>& ids) const;
  std::unique_ptr<Work> take_work() const;

  const std::string name_ = "bpe";
  std::string json_, digest_;
  std::vector<std::string> texts_;  // what each id gives back
  std::optional<Bpe> bpe_;
  Added all_, unspecial_;
  std::unordered_map<std::string, int32_t> special_ids_;
  bool nfc_;
  Splitter splitter_;
  int32_t end_ = -1;
  bool cuttable_ = true;
  mutable std::mutex mutex_;  // of idle_
  mutable std::vector<std::unique_ptr<Work>> idle_;
};

ByteLevel::ByteLevel(ByteLevelSpec spec, const std::string& subject)
    : nfc_(spec.nfc), splitter_(spec.pattern) {
  ByteOf byte_of;
  const auto characters = byte_characters();
  for (size_t byte = 0; byte < characters.size(); ++byte)
    byte_of[characters[byte]] = static_cast<uint8_t>(byte);
  Bpe::Parts parts{.bytes = {}, .merges = std::move(spec.merges)};
  parts.bytes.fill(-1);
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const auto bytes = bytes_of(spec.tokens[i], byte_of);
    const auto id = static_cast<int32_t>(i);
    if (bytes && bytes->size() == 1) parts.bytes[static_cast<uint8_t>(bytes->front())] = id;
    if (bytes && spec.ignore_merges) parts.words.emplace(*bytes, id);
    texts_.push_back(bytes.value_or(spec.tokens[i]));
  }
  bpe_.emplace(std::move(parts));
  read_added(spec, subject);
}

void ByteLevel::read_added(const ByteLevelSpec& spec, const std::string& subject) {
  // The names under which models end a document, the most usual first.
  constexpr std::array kEnds = {"<|endoftext|>", "<|end_of_text|>", "</s>"};
  size_t end_rank = kEnds.size();
  // Special ones first: they count where two texts become equal by the normaliser.
  for (const bool special : {true, false}) {
    for (const auto& token : spec.added) {
      if (token.special != special) continue;
      std::string buffer;
      const bool normalizes = nfc_ && token.normalized;
      const auto text = normalizes ? to_nfc(token.text, buffer) : std::string_view(token.text);
      const auto add_to = [&](Added& added) {
        (token.normalized ? added.normalized : added.raw).add(text, token.id);
      };
      add_to(all_);
      if (special)
        special_ids_.emplace(token.text, token.id);
      else
        add_to(unspecial_);
      for (size_t i = 1; i < text.size(); ++i)  // a cut would go through it
        cuttable_ = cuttable_ && !(is_cut_before(text[i]) && is_cut_behind(text.substr(0, i)));
      const auto id = static_cast<size_t>(token.id);
      if (id >= texts_.size()) texts_.resize(id + 1);
      texts_[id] = special ? "" : token.text;
      const auto rank = static_cast<size_t>(std::ranges::find(kEnds, token.text) - kEnds.begin());
      if (special && rank < end_rank) {
        end_rank = rank;
        end_ = token.id;
      }
    }
  }
  base::require(end_ >= 0,
                "{}: must have a special added token to end documents with, {}, got none", subject,
                fmt::join(kEnds, " or "));
}

std::unique_ptr<ByteLevel::Work> ByteLevel::take_work() const {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<Work>();
  auto work = std::move(idle_.back());
  idle_.pop_back();
  return work;
}

std::vector<int32_t> ByteLevel::encode(std::string_view text, const Added& added) const {
  constexpr size_t kMost = size_t{1} << 31;  // places within a word are counted in 32 bits
  base::require(text.size() <= kMost,
                "text: must have a place to cut it within {} bytes for this tokenizer, got none",
                kMost);
  std::string valid;
  if (find_utf8_fault(text).at < text.size()) text = valid = replace_utf8_faults(text);
  auto work = take_work();
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3);
  for (size_t at = 0; at < text.size();) {
    const auto raw = added.raw.find(text, at);
    auto piece = text.substr(at, raw.begin - at);
    if (nfc_) piece = to_nfc(piece, work->normalized);
    for (size_t from = 0; from < piece.size();) {
      const auto match = added.normalized.find(piece, from);
      encode_words(piece.substr(from, match.begin - from), *work, ids);
      if (match.id >= 0) ids.push_back(match.id);
      from = match.end;
    }
    if (raw.id >= 0) ids.push_back(raw.id);
    at = raw.end;
  }
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(work));
  return ids;
}

void ByteLevel::encode_words(std::string_view text, Work& work, std::vector<int32_t>& ids) const {
  const char* const end = text.data() + text.size();
  for (const char* p = text.data(); p < end;) {
    const char* const stop = splitter_.word_end(p, end);
    bpe_->encode({p, stop}, static_cast<size_t>(end - p), work.words, ids);
    p = stop;
  }
}

// Whether a word ends here for certain where a blank or a line break follows. Not so behind a sign
// by Llama 3's pattern, which takes line breaks with it, nor where the normaliser changes
// something.
bool ByteLevel::is_cut_behind(std::string_view text) const {
  size_t begin = text.size() - 1;
  while (begin > 0 && text.size() - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80)
    --begin;
  if (find_utf8_fault(text.substr(begin)).at != text.size() - begin) return false;
  const auto flags = character_flags()[character_at(text.data() + begin).code];
  return flags == kLetter || flags == kNumber ||
         (flags == kOther && splitter_.pattern() != SplitPattern::kLlama3);
}

size_t ByteLevel::find_cut(std::string_view text, size_t from) const {
  if (!cuttable_) return text.size();
  for (size_t at = std::max<size_t>(from, 1); at < text.size(); ++at)
    if (is_cut_before(text[at]) && is_cut_behind(text.substr(0, at))) return at;
  return text.size();
}

std::string ByteLevel::decode(std::span<const int32_t> ids) const {
  const int64_t last = vocab_size() - 1;
  std::string text;
  for (const int32_t id : ids) {
    base::require(id >= 0 && id <= last, "decode: token id must be from 0 to {}, got {}", last, id);
    text += texts_[static_cast<size_t>(id)];
  }
  return text;
}

}  // namespace

std::unique_ptr<Tokenizer> make_byte_level(std::string json, const std::string& subject) {
  return std::make_unique<ByteLevel>(std::move(json), subject);
}

}  // namespace bmojo::data
