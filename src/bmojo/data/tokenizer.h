#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bmojo::data {

// What a tokenizer's file is called beside the shards and in a checkpoint: a SentencePiece model,
// and byte-level BPE.
inline constexpr const char* kSentencePieceFile = "tokenizer.model";
inline constexpr const char* kByteLevelFile = "tokenizer.json";

// By the tokenizer's name; empty for one without a file.
std::string tokenizer_file_name(std::string_view name);

// Text to token ids and back. Every method may be called from several threads at once. Text is any
// bytes, NUL among them.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The ids of a whole text; neither a beginning nor an end is marked.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // The same of text in which nothing marks anything: special tokens that are written in it count
  // as the characters they are written with.
  virtual std::vector<int32_t> encode_ordinary(std::string_view text) const { return encode(text); }
  // The id of a special token that encode() knows by its text, or -1.
  virtual int32_t special_id(std::string_view /*text*/) const { return -1; }
  // Ids that mark something (the end of a document) give no text. Error for an id outside the
  // vocabulary.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  // The bytes that an id stands for behind others; TextStream makes text of them.
  virtual std::string decode_behind(int32_t id) const { return decode({&id, 1}); }
  virtual int64_t vocab_size() const = 0;
  virtual int32_t end_of_document() const = 0;
  virtual const std::string& name() const = 0;           // "bytes", "sentencepiece" or "bpe"
  virtual std::string digest() const { return ""; }      // of model()
  virtual std::string_view model() const { return {}; }  // the bytes of its file, if it has one

  // The first place at or behind `from` where a text may be cut without changing an id, so that
  //   encode(text) = encode(text before the cut) + encode_rest(text behind the cut).
  // It is never 0. text.size() where there is none.
  virtual size_t find_cut(std::string_view text, size_t from) const = 0;
  virtual std::vector<int32_t> encode_rest(std::string_view text) const = 0;
};

// "bytes" (ids 0-255 are the bytes, 256 the end of a document), a SentencePiece tokenizer.model, a
// byte-level tokenizer.json, or GPT-2's vocab.json or merges.txt with the other one beside it.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name_or_file);

// The tokenizer that a checkpoint's folder holds, or null. Without a file a model of 257 ids is
// taken for one of bytes.
std::unique_ptr<Tokenizer> tokenizer_of(const std::filesystem::path& folder, int64_t vocab_size);

// The digests, by file, of the tokenizers in a checkpoint's folder that data of tokenizer `name`
// can be compared with: it may hold the same one as tokenizer.json and as vocab.json with
// merges.txt.
std::map<std::string, std::string> tokenizer_digests(const std::filesystem::path& folder,
                                                     std::string_view name);

}  // namespace bmojo::data
