#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "bmojo/base/error.h"
#include "bmojo/data/task.h"

namespace bmojo::test {

struct Sequence {
  std::vector<int64_t> ids, targets, sources;
  bool operator==(const Sequence&) const = default;
};

// What a task leaves unwritten shows as -7.
inline Sequence sequence(const data::Task& task, uint64_t seed, data::Split split,
                         uint64_t number) {
  const std::vector<int64_t> unwritten(task.length, -7);
  Sequence out{unwritten, unwritten, unwritten};
  data::draw(task, seed, split, number, {out.ids, out.targets, out.sources});
  return out;
}

// Where something is due, in order.
inline std::vector<int64_t> places_due(const Sequence& s) {
  std::vector<int64_t> places;
  for (int64_t t = 0; t < std::ssize(s.targets); ++t)
    if (s.targets[t] != data::kNotScored) places.push_back(t);
  return places;
}

inline std::string text_of(const Sequence& s) {
  std::vector<std::string> words;
  for (size_t t = 0; t < s.ids.size(); ++t)
    words.push_back(s.targets[t] == data::kNotScored
                        ? fmt::format("{}", s.ids[t])
                        : fmt::format("{}->{}", s.ids[t], s.targets[t]));
  return fmt::format("{}", fmt::join(words, " "));
}

// Of sequences 0 … 99 of a task, of both splits in turn.
inline std::string digest_of(const std::string& text) {
  const auto task = data::parse_task(text);
  uint64_t digest = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    const auto s = sequence(task, 3, i % 2 == 1 ? data::Split::train : data::Split::test, i);
    for (const auto* all : {&s.ids, &s.targets})
      for (const auto token : *all)
        digest = base::mix_bits(digest + static_cast<uint64_t>(token) + base::kGoldenGamma);
  }
  return fmt::format("{:016x}", digest);
}

inline std::string refusal(const std::string& text) {
  try {
    data::parse_task(text);
  } catch (const base::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace bmojo::test
