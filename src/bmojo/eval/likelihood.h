#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "bmojo/eval/language_model.h"
#include "bmojo/eval/score.h"

namespace bmojo::eval {

// A text that is given, of one token at least, and one whose probability behind it is asked for.
struct Asked {
  Ids context, continuation;
};

struct Likelihood {
  double log_p = 0;       // of the whole continuation, in nats
  bool is_greedy = true;  // whether each of its tokens was the likeliest
  int64_t num_tokens = 0;

  Likelihood& operator+=(const Likelihood& other);
};

// What some texts begin with, read once: each of them goes on with a copy.
struct Beginning {
  size_t size = 0;  // in tokens
  std::unique_ptr<Memory> memory;
};
Beginning read_beginning(const LanguageModel& model, std::span<const int64_t> ids,
                         const std::function<void()>& between_parts = {});

// Of groups of questions; those of a group are answered from one reading of the tokens that they
// begin with in common. All groups are read at once, in parts of bounded size; a group's result is
// of that group alone. `beginning`, where it is given, is what every context begins with; it is
// shorter than each. RunError where probabilities are not finite.
std::vector<std::vector<Likelihood>> likelihoods(const LanguageModel& model,
                                                 std::span<const std::vector<Asked>> groups,
                                                 const std::function<void()>& between_parts = {},
                                                 const Beginning* beginning = nullptr);

}  // namespace bmojo::eval
