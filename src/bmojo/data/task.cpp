#include "bmojo/data/task.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"

namespace bmojo::data {
namespace {

struct Maker {
  std::string_view name;
  Task (*make)(TaskKeys& keys);
  std::string_view example;  // keys of one that fits a screen
};
constexpr std::array kMakers = {
    Maker{"mqar", make_mqar, "pairs=4,length=48,vocab=64,gap=8"},
    Maker{"noisy-mqar", make_noisy_mqar, "pairs=4,length=64,vocab=64,gap=8"},
    Maker{"fuzzy-mqar", make_fuzzy_mqar, "pairs=4,length=72,vocab=64,gap=8"},
    Maker{"induction", make_induction, "length=64"},
    Maker{"selective-copy", make_selective_copy, "length=64,tokens=8"},
};

}  // namespace

Task parse_task(std::string_view text) {
  const auto colon = text.find(':');
  const auto name = text.substr(0, colon);
  const auto maker = std::ranges::find(kMakers, name, &Maker::name);
  std::vector<std::string_view> names;
  for (const auto& known : kMakers) names.push_back(known.name);
  base::require(maker != kMakers.end(), "task: must be one of {}, got {}", fmt::join(names, ", "),
                base::in_quotes(name));
  TaskKeys keys(name, colon == std::string_view::npos ? "" : text.substr(colon + 1));
  return maker->make(keys);
}

std::string with_example_keys(std::string_view text) {
  const auto maker = std::ranges::find(kMakers, text, &Maker::name);
  return maker == kMakers.end() ? std::string(text) : fmt::format("{}:{}", text, maker->example);
}

void draw(const Task& task, uint64_t seed, Split split, uint64_t number,
          const TaskSequence& sequence) {
  base::Random random({seed, static_cast<uint64_t>(split), number});
  std::ranges::fill(sequence.targets, kNotScored);
  std::ranges::fill(sequence.sources, kNoSource);
  task.fill(random, sequence);
}

TaskKeys::TaskKeys(std::string_view name, std::string_view keys) : name_(name) {
  while (!keys.empty()) {
    const auto comma = keys.find(',');
    const auto part = keys.substr(0, comma);
    const auto equals = part.find('=');
    base::require(equals != std::string_view::npos && equals > 0,
                  "task {}: must be given as key=value,…, got {}", name_, base::in_quotes(part));
    const std::string key(part.substr(0, equals));
    base::require(std::ranges::find(entries_, key, &Entry::key) == entries_.end(),
                  "task {}: {} must be given once, got it twice", name_, base::in_quotes(key));
    entries_.push_back({key, std::string(part.substr(equals + 1))});
    keys = comma == std::string_view::npos ? "" : keys.substr(comma + 1);
  }
}

const std::string* TaskKeys::find(std::string_view key) {
  const auto entry = std::ranges::find(entries_, key, &Entry::key);
  if (entry == entries_.end()) return nullptr;
  entry->taken = true;
  return &entry->value;
}

int64_t TaskKeys::parse(std::string_view key, std::string_view text, int64_t low,
                        int64_t high) const {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  base::require(
      error == std::errc() && end == text.data() + text.size() && value >= low && value <= high,
      "task {}: {} must be a whole number from {} to {}, got {}", name_, key, low, high,
      base::in_quotes(text));
  return value;
}

void TaskKeys::note(std::string_view key, std::string_view value) {
  text_ += fmt::format("{}{}={}", text_.empty() ? "" : ",", key, value);
}

TaskKeys::Range TaskKeys::range(std::string_view key, int64_t least,
                                std::optional<int64_t> otherwise) {
  const auto* text = find(key);
  base::require(text != nullptr || otherwise, "task {}: {} must be given, got none", name_, key);
  if (text == nullptr) {
    note(key, fmt::format("{}", *otherwise));
    return {*otherwise, *otherwise};
  }
  const auto dots = text->find("..");
  const std::string_view whole = *text;
  const int64_t low = parse(key, whole.substr(0, dots), least, kMostTokens);
  const int64_t high =
      dots == std::string::npos ? low : parse(key, whole.substr(dots + 2), least, kMostTokens);
  base::require(low <= high, "task {}: {} must be a range from low to high, got {}", name_, key,
                base::in_quotes(*text));
  note(key, *text);
  return {low, high};
}

int64_t TaskKeys::number(std::string_view key, int64_t low, int64_t high) {
  const auto* text = find(key);
  base::require(text != nullptr, "task {}: {} must be given, got none", name_, key);
  const int64_t value = parse(key, *text, low, high);
  note(key, fmt::format("{}", value));
  return value;
}

int64_t TaskKeys::number(std::string_view key, int64_t low, int64_t high, int64_t otherwise) {
  const auto* text = find(key);
  const int64_t value = text != nullptr ? parse(key, *text, low, high) : otherwise;
  note(key, fmt::format("{}", value));
  return value;
}

std::optional<int64_t> TaskKeys::number_if_given(std::string_view key, int64_t low, int64_t high) {
  const bool is_given = std::ranges::find(entries_, key, &Entry::key) != entries_.end();
  return is_given ? std::optional(number(key, low, high)) : std::nullopt;
}

double TaskKeys::share(std::string_view key, double high, double otherwise) {
  const auto* text = find(key);
  double value = otherwise;
  if (text != nullptr) {
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    base::require(
        error == std::errc() && end == text->data() + text->size() && value >= 0 && value <= high,
        "task {}: {} must be a number from 0 to {}, got {}", name_, key, high,
        base::in_quotes(*text));
  }
  note(key, fmt::format("{}", value));
  return value;
}

std::string TaskKeys::word(std::string_view key, const std::vector<std::string>& choices) {
  const auto* text = find(key);
  const auto value = text != nullptr ? *text : choices.front();
  base::require(std::ranges::find(choices, value) != choices.end(),
                "task {}: {} must be {}, got {}", name_, key, fmt::join(choices, " or "),
                base::in_quotes(value));
  note(key, value);
  return value;
}

std::string TaskKeys::finish() {
  for (const auto& entry : entries_)
    base::require(entry.taken, "task {}: key {} is not known", name_, base::in_quotes(entry.key));
  return name_ + ":" + text_;
}

}  // namespace bmojo::data
