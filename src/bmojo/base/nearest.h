#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bmojo::base {

// How far apart two words are: 2 for a letter that is missing, added or swapped with its neighbour,
// 3 for one that is another, which happens less.
inline size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last, last, row(b.size() + 1);  // from a start of a to those of b
  for (size_t j = 0; j <= b.size(); ++j) row[j] = 2 * j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last = std::exchange(last, row);
    row[0] = 2 * i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = a[i - 1] == b[j - 1];
      row[j] = std::min({last[j] + 2, row[j - 1] + 2, last[j - 1] + (same ? 0 : 3)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 2);
    }
  }
  return row.back();
}

// What was meant by a misspelt or shortened word: the nearest of the names, or nothing where even
// that is another word.
inline std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  std::string best;
  size_t least = 0;
  for (const auto& name : names) {
    const bool shortened = word.size() >= 3 && name.starts_with(word);
    const size_t changes = shortened ? 1 : distance(word, name);
    if (changes > std::max(word.size(), name.size())) continue;  // half of it is missing
    if (best.empty() || changes < least) {
      best = name;
      least = changes;
    }
  }
  return best;
}

}  // namespace bmojo::base
