#pragma once

#include <string>
#include <string_view>
#include <vector>

// What suites do to their texts before a model reads them, as lm-evaluation-harness 0.4.13 has it.

namespace bmojo::eval {

// HellaSwag: without white space around it, and without what its source, WikiHow, put in brackets.
std::string clean_hellaswag(std::string_view text);

// WikiText: words as they were before they were set apart from marks: "a , b" is "a, b".
std::string detokenize_wikitext(std::string_view page);

// The pages of WikiText's own file; each begins with its title, a line " = Title = ".
std::vector<std::string> wikitext_pages(std::string_view text);

}  // namespace bmojo::eval
