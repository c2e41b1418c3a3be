#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bmojo/base/random.h"

namespace bmojo::data {

// A position nothing is due at; the value is torch's.
inline constexpr int64_t kNotScored = -100;

// One sequence of a task, all three of its length.
struct TaskSequence {
  std::span<int64_t> ids;
  std::span<int64_t> targets;  // the token due at each position, or kNotScored
  std::span<int64_t> sources;  // where the token stands that is due, or kNoSource
};
inline constexpr int64_t kNoSource = -1;

// A synthetic task: sequences of its own making, as many as asked for, each a function of a seed
// and its number alone.
struct Task {
  std::string text;    // every key with its value: "mqar:pairs=8,length=128,…"
  std::string legend;  // what the ids are, in a line for people
  int64_t length = 0, vocab_size = 0;
  // Targets and sources come filled with kNotScored and kNoSource. Only reports and
  // eidetic_rule=oracle read the sources: they tell what a memory should have kept.
  std::function<void(base::Random& random, const TaskSequence& sequence)> fill;
};

// "NAME" or "NAME:key=value,…"; Error naming the key that is unknown, missing or impossible.
Task parse_task(std::string_view text);

// A small example of a task that was named without keys: "mqar" -> "mqar:pairs=4,…".
std::string with_example_keys(std::string_view text);

// Training and testing never draw from the same stream.
enum class Split : uint64_t { train = 1, test = 2 };
void draw(const Task& task, uint64_t seed, Split split, uint64_t number,
          const TaskSequence& sequence);

// The keys of a task, taken one by one; what nobody took is refused.
class TaskKeys {
 public:
  TaskKeys(std::string_view name, std::string_view keys);

  struct Range {
    int64_t low, high;
  };
  // "4" or "4..24"; must be given unless there is another.
  Range range(std::string_view key, int64_t low, std::optional<int64_t> otherwise = {});
  int64_t number(std::string_view key, int64_t low, int64_t high);  // must be given
  int64_t number(std::string_view key, int64_t low, int64_t high, int64_t otherwise);
  std::optional<int64_t> number_if_given(std::string_view key, int64_t low, int64_t high);
  double share(std::string_view key, double high, double otherwise);  // from 0 on
  std::string word(std::string_view key,
                   const std::vector<std::string>& choices);  // the first: default
  // Every key as it was taken: the task's whole text. Error where one was not.
  std::string finish();

 private:
  const std::string* find(std::string_view key);
  int64_t parse(std::string_view key, std::string_view text, int64_t low, int64_t high) const;
  void note(std::string_view key, std::string_view value);

  struct Entry {
    std::string key, value;
    bool taken = false;
  };
  std::string name_, text_;
  std::vector<Entry> entries_;
};

// The most that a length, a vocabulary or a number of pairs may be.
inline constexpr int64_t kMostTokens = int64_t{1} << 30;

// One file a task.
Task make_mqar(TaskKeys& keys);
Task make_noisy_mqar(TaskKeys& keys);
Task make_fuzzy_mqar(TaskKeys& keys);
Task make_induction(TaskKeys& keys);
Task make_selective_copy(TaskKeys& keys);

}  // namespace bmojo::data
