#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

// How well a text that was written answers, from 0 to 1; `golds` are not empty.

namespace bmojo::eval {

// SQuAD's and SCROLLS' words of a text: in small letters, without ASCII's punctuation and without
// articles.
std::vector<std::string> answer_words(std::string_view text);

// The harmonic mean of the shares of words that both have, of the right answer that gives most.
double score_f1(std::string_view text, std::span<const std::string> golds);
// The same, where no text says that there is no answer.
double score_qasper(std::string_view text, std::span<const std::string> golds);
// The share of the right texts that stand in it, in small or large letters.
double score_contained(std::string_view text, std::span<const std::string> golds);

}  // namespace bmojo::eval
