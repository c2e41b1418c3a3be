#pragma once

#include <cstdint>
#include <vector>

#include "bmojo/data/tokenizer.h"
#include "bmojo/eval/likelihood.h"
#include "bmojo/eval/suite.h"

namespace bmojo::eval {

// What a model is asked for an item: a question for each choice, one without a continuation where
// the model shall write it, or one for each window of a document, in the tokens that
// lm-evaluation-harness 0.4.13 has. A text without context stands behind the token that begins a
// text (or else ends one). `max_length`: tokens of a document that are read at once, each window
// from an empty memory; 0 reads it whole. Error naming the item where a continuation has no token
// of its own.
std::vector<Asked> questions(const Item& item, Question kind, const model::Config& config,
                             const data::Tokenizer& tokenizer, int64_t max_length = 0);

}  // namespace bmojo::eval
