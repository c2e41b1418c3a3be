#pragma once

#include <optional>
#include <string_view>

namespace bmojo::data {

// What a tokenizer.model says of how text is prepared and segmented; defaults as in SentencePiece's
// sentencepiece_model.proto. The library parses the same fields and does not tell them.
struct SentencePieceSpec {
  bool bpe = false;                  // segments by merging neighbours, the best piece first
  bool byte_fallback = false;        // unknown characters become one id a byte
  bool whitespace_suffix = false;    // the blank is put behind a text instead of before it
  bool rewrites_characters = false;  // e.g. by Unicode NFKC
  bool dummy_prefix = true;          // a blank is put before a text
  bool removes_whitespace = true;
  bool escapes_whitespace = true;  // a blank is U+2581 in pieces

  // Whether an id depends only on characters that one piece can hold together: nothing is rewritten
  // across them, and no score is summed over the text (a unigram model does, and rounds).
  bool merges_locally() const {
    return bpe && byte_fallback && !whitespace_suffix && !rewrites_characters &&
           !removes_whitespace && escapes_whitespace;
  }
};

// Nothing where the file cannot be followed.
std::optional<SentencePieceSpec> read_sentencepiece_spec(std::string_view model);

}  // namespace bmojo::data
