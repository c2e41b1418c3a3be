#pragma once

#include <memory>
#include <string>

#include "bmojo/data/tokenizer.h"

namespace bmojo::data {

// Byte-level BPE by the text of a tokenizer.json, of the kinds of GPT-2, GPT-NeoX, Llama 3 and
// SmolLM2. Ids are those of Python's `tokenizers`, without special tokens added. A byte that is not
// part of valid UTF-8 counts as U+FFFD.
std::unique_ptr<Tokenizer> make_byte_level(std::string json, const std::string& subject);

}  // namespace bmojo::data
