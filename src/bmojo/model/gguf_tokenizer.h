#pragma once

#include <string>

#include "bmojo/model/gguf_header.h"

namespace bmojo::model {

// What a file holds of a tokenizer, as the files of a checkpoint. Either may be empty.
struct GgufTokenizer {
  std::string json;           // tokenizer.json
  std::string why_not;        // where json is empty: "tokenizer.ggml.model must be 'gpt2', got …"
  std::string chat_template;  // chat_template.jinja
};

// A tokenizer of a kind that bmojo does not have gives `why_not`; one that contradicts itself is an
// Error.
GgufTokenizer tokenizer_of_gguf(const GgufHeader& header, const std::string& subject);

}  // namespace bmojo::model
