#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bmojo/data/bpe.h"
#include "bmojo/data/splitter.h"

namespace bmojo::data {

// A text that is one id wherever it stands.
struct AddedToken {
  int32_t id;
  std::string text;
  bool special;     // marks something: gives no text back
  bool normalized;  // looked for behind the normaliser, not before it
};

// What a byte-level tokenizer.json says. Tokens are written as the file has them: one character for
// each byte, by byte_characters().
struct ByteLevelSpec {
  std::vector<std::string> tokens;  // by id
  std::vector<BpeMerge> merges;     // the best first
  bool ignore_merges = false;       // a word that is a token is not merged
  bool nfc = false;
  SplitPattern pattern = SplitPattern::kGpt2;
  std::vector<AddedToken> added;  // some of `tokens`, then those that follow
};

// Error, naming it, for every part that would make other ids than bmojo does.
ByteLevelSpec read_tokenizer_json(std::string_view text, const std::string& subject);

// GPT-2's vocab.json and merges.txt as the tokenizer.json that means the same.
std::string tokenizer_json_of(std::string_view vocab, const std::string& vocab_subject,
                              std::string_view merges, const std::string& merges_subject);

// The character that stands for each byte: printable Latin-1 itself, the others U+0100, U+0101, ….
std::vector<uint32_t> byte_characters();

}  // namespace bmojo::data
