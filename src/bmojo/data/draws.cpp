#include "bmojo/data/draws.h"

#include <unordered_map>

namespace bmojo::data {

// The first of a shuffle; places that were swapped are looked up, so that a wide range costs
// nothing.
std::vector<int64_t> draw_distinct(base::Random& random, int64_t count, int64_t low, int64_t high) {
  std::vector<int64_t> numbers;
  std::unordered_map<int64_t, int64_t> moved;  // place -> the number that stands there now
  const auto at = [&](int64_t place) {
    const auto it = moved.find(place);
    return it == moved.end() ? place : it->second;
  };
  for (int64_t first = low; first < low + count; ++first) {
    const int64_t place = draw_from(random, first, high);
    numbers.push_back(at(place));
    moved[place] = at(first);
  }
  return numbers;
}

}  // namespace bmojo::data
