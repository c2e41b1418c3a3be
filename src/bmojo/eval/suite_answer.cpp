#include "bmojo/eval/suite_answer.h"

#include <algorithm>
#include <map>

#include "bmojo/data/python_text.h"
#include "bmojo/data/unicode.h"

namespace bmojo::eval {
namespace {

// \w of Python, but for the underscore.
bool is_word(uint32_t code) {
  const auto kind = data::character_flags()[code] & data::kClassBits;
  return kind == data::kLetter || kind == data::kNumber;
}

// string.punctuation of Python.
bool is_punctuation(char byte) {
  return (byte >= '!' && byte <= '/') || (byte >= ':' && byte <= '@') ||
         (byte >= '[' && byte <= '`') || (byte >= '{' && byte <= '~');
}

// re.sub(r"\b(a|an|the)\b", " ", text)
std::string without_articles(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at, size = 0;
    while (end < text.size()) {
      const auto next = data::character_at(text.data() + end);
      size = next.size;
      if (!is_word(next.code)) break;
      end += size;
    }
    const auto word = text.substr(at, end - at);
    if (word == "a" || word == "an" || word == "the")
      out += ' ';
    else
      out += word;
    if (end < text.size()) {
      out += text.substr(end, size);
      end += size;
    }
    at = end;
  }
  return out;
}

double f1(const std::vector<std::string>& words, const std::vector<std::string>& gold) {
  std::map<std::string_view, int> left;
  for (const auto& word : gold) ++left[word];
  int num_same = 0;
  for (const auto& word : words) num_same += left[word]-- > 0;
  if (num_same == 0) return 0;
  // 2pr / (p + r) with p = same / words, r = same / gold
  return 2. * num_same / static_cast<double>(words.size() + gold.size());
}

}  // namespace

std::vector<std::string> answer_words(std::string_view text) {
  auto lowered = data::lowered(text);
  std::erase_if(lowered, is_punctuation);
  return data::split(without_articles(lowered));
}

double score_f1(std::string_view text, std::span<const std::string> golds) {
  const auto words = answer_words(text);
  double best = 0;
  for (const auto& gold : golds) best = std::max(best, f1(words, answer_words(gold)));
  return best;
}

double score_qasper(std::string_view text, std::span<const std::string> golds) {
  return score_f1(data::strip(text).empty() ? "Unanswerable" : text, golds);
}

double score_contained(std::string_view text, std::span<const std::string> golds) {
  const auto lowered = data::lowered(text);
  const auto count = std::ranges::count_if(golds, [&](const std::string& gold) {
    return lowered.find(data::lowered(gold)) != std::string::npos;
  });
  return static_cast<double>(count) / static_cast<double>(golds.size());
}

}  // namespace bmojo::eval
