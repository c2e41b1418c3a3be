#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "bmojo/data/tokenizer.h"
#include "bmojo/eval/language_model.h"
#include "bmojo/eval/suite.h"
#include "bmojo/eval/suite_score.h"

namespace bmojo::eval {

struct Asking {
  const LanguageModel& model;
  const data::Tokenizer& tokenizer;
  const Suite& suite;
  size_t batch = 16;       // items that are read at once, or windows of documents
  int64_t max_length = 0;  // of such a window; 0: whole documents
  std::function<void()> between_parts = {};
};

// Asks items in their order, some at once, and hands their answers over as soon as they are there.
// A document is read once for all items about it.
void ask(const Asking& asking, std::span<const Item> items,
         const std::function<void(std::span<const Answers> answers)>& take);

}  // namespace bmojo::eval
