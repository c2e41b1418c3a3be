#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bmojo/base/json.h"
#include "bmojo/eval/likelihood.h"
#include "bmojo/eval/suite.h"

namespace bmojo::eval {

// What a question of an item got, and the text where one was written.
struct Answer : Likelihood {
  std::string text = {};
};

// Of an item; of a document one, summed over its windows.
using Answers = std::vector<Answer>;

// Windows of a document become one answer.
Answers answers_of(Question kind, std::span<const Likelihood> likelihoods);

// What was answered in words: the text that was written, or the likeliest of those that were given.
std::string text_of(const Item& item, const Answers& answers);

// Which choice is the likeliest, as a whole, by the character and by the byte; the first of
// several.
struct Chosen {
  int64_t plain = 0, by_character = 0, by_byte = 0;
};
Chosen chosen(const Item& item, const Answers& answers);

// A measure over all items.
struct Measured {
  std::string name;
  double value = 0;
  std::optional<double> standard_error = {};  // where it is known
  bool is_share = false;
};

// Those of a suite. Of several parts, the mean of the parts' measures.
std::vector<Measured> measure(const SuiteData& data, std::span<const Answers> answers);
// Of one part.
std::vector<Measured> measure_part(const SuiteData& data, std::span<const Answers> answers,
                                   size_t part);

// A line of a file of items, and back: the texts' digest, what each choice got, and how it counts.
base::Json item_line(const Suite& suite, const Item& item, int64_t index, const Answers& answers);
// Error with `subject` where the line is none of this item.
Answers answers_of_line(const base::Json& line, const Item& item, int64_t index,
                        const std::string& subject);

}  // namespace bmojo::eval
