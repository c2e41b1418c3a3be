#include "bmojo/eval/suite_needles.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <utility>

#include "bmojo/base/error.h"
#include "bmojo/base/random.h"

namespace bmojo::eval {
namespace {

// RULER's noise; it is repeated.
constexpr std::string_view kNoise =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

// How often noise is repeated at most, so that text(n) has no more than `room` tokens; at least
// `least` times. Texts may be long: few of them are made.
int64_t most_noise(const Making& making, int64_t least, int64_t room,
                   const std::function<std::string(int64_t n)>& text) {
  const auto left = [&](int64_t n) { return room - making.count_tokens(text(n)); };
  int64_t n = least, rest = left(n);
  const int64_t eight = rest - left(n + 8), each = std::max<int64_t>(1, (eight + 7) / 8);
  for (; rest >= each; rest = left(n)) n += rest / each;
  while (n > least && rest < 0) rest = left(--n);
  while (left(n + 1) >= 0) ++n;
  return n;
}

void require_room(const Making& making, int64_t needed, uint64_t number) {
  base::require(needed <= making.length, "--length: must be at least {} tokens for item {}, got {}",
                needed, number + 1, making.length);
}

// --- niah_single_1: one number in noise ----------------------------------------------------------

constexpr std::array kAdjectives = {"brave", "calm",   "clever", "eager", "early", "gentle",
                                    "happy", "honest", "humble", "lucky", "quiet", "rapid",
                                    "shiny", "steady", "tiny",   "wise"};
constexpr std::array kNouns = {
    "anchor",  "basket", "bridge",  "candle",  "carpet", "castle", "circle", "cloud",
    "desert",  "engine", "feather", "forest",  "garden", "hammer", "harbor", "island",
    "jacket",  "kettle", "ladder",  "lantern", "market", "meadow", "mirror", "marble",
    "orchard", "pencil", "pocket",  "rocket",  "saddle", "tunnel", "valley", "window"};

struct Needle {
  std::string key, number;
};

std::string needle_prompt(const Needle& needle, int64_t num_noise, int64_t at) {
  std::string context;
  for (int64_t i = 0; i < num_noise; ++i) {
    if (i == at)
      context += fmt::format("One of the special magic numbers for {} is: {}.\n", needle.key,
                             needle.number);
    context += kNoise;
    context += '\n';
  }
  return fmt::format(
      "A special magic number is hidden within the following text. Make sure to memorize it. I "
      "will quiz you about the number afterwards.\n{0}What is the special magic number for {1} "
      "mentioned in the provided text? The special magic number for {1} mentioned in the provided "
      "text is",
      context, needle.key);
}

// --- variable tracking: a number that is handed on from name to name -----------------------------

constexpr int64_t kNames = 5;          // of a chain: RULER's four hops
constexpr int64_t kLeastNoise = 6;     // more than a chain has names: they stand apart
constexpr int64_t kExampleRoom = 500;  // tokens of the example before the question

struct Chain {
  std::vector<std::string> names = {};
  uint64_t value = 0;
};

Chain draw_chain(base::Random& random, int num_letters) {
  Chain chain{.value = 10000 + random.below(89999)};
  while (std::ssize(chain.names) < kNames) {
    std::string name;
    for (int i = 0; i < num_letters; ++i) name += static_cast<char>('A' + random.below(26));
    if (std::ranges::find(chain.names, name) == chain.names.end()) chain.names.push_back(name);
  }
  return chain;
}

// The chain's assignments stand in front of the noises numbered `places`, in their order.
std::string chain_question(const Chain& chain, int64_t num_noise,
                           const std::vector<int64_t>& places) {
  std::string context;
  size_t next = 0;
  for (int64_t i = 0; i < num_noise; ++i) {
    if (i > 0) context += ' ';
    if (next < places.size() && places[next] == i) {
      context += next == 0
                     ? fmt::format("VAR {} = {} ", chain.names[0], chain.value)
                     : fmt::format("VAR {} = VAR {}  ", chain.names[next], chain.names[next - 1]);
      ++next;
    }
    context += kNoise;
    context += '\n';
  }
  return fmt::format(
      "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n{}\n"
      "Question: Find all variables that are assigned the value {} in the text above. "
      // As RULER spells it.
      "Answer: According to the chain(s) of variable assignment in the text above, {} variables "
      "are assgined the value {}, they are:",
      context, chain.value, kNames, chain.value);
}

std::vector<int64_t> first_places() {
  std::vector<int64_t> places(kNames);
  std::iota(places.begin(), places.end(), 0);
  return places;
}

std::vector<int64_t> draw_places(base::Random& random, int64_t num_noise) {
  std::vector<int64_t> places;
  while (std::ssize(places) < kNames) {
    const auto place = static_cast<int64_t>(random.below(static_cast<uint64_t>(num_noise)));
    if (std::ranges::find(places, place) == places.end()) places.push_back(place);
  }
  std::ranges::sort(places);
  return places;
}

// A question with its answer that stands before the one that is asked.
std::string draw_example(const Making& making, base::Random& random) {
  const auto chain = draw_chain(random, 3);
  const int64_t n = most_noise(making, kLeastNoise, kExampleRoom - making.answer_tokens,
                               [&](int64_t m) { return chain_question(chain, m, first_places()); });
  return fmt::format("{}  {}\n\n\n\n", chain_question(chain, n, draw_places(random, n)),
                     fmt::join(chain.names, " "));
}

}  // namespace

Item make_niah_single(const Making& making, uint64_t number) {
  base::Random random({making.seed, number, 91});
  const Needle needle{.key = fmt::format("{}-{}", kAdjectives[random.below(kAdjectives.size())],
                                         kNouns[random.below(kNouns.size())]),
                      .number = std::to_string(1000000 + random.below(9000000))};
  const int64_t room = making.length - making.answer_tokens;
  require_room(making, making.count_tokens(needle_prompt(needle, 1, 0)) + making.answer_tokens,
               number);
  int64_t n = most_noise(making, 1, room, [&](int64_t m) { return needle_prompt(needle, m, 0); });
  auto at = static_cast<int64_t>(random.below(static_cast<uint64_t>(n)));
  // Where it stands may change how many tokens there are.
  while (n > 1 && making.count_tokens(needle_prompt(needle, n, at)) > room)
    at = std::min(at, --n - 1);
  return {.where = fmt::format("item {}", number + 1),
          .choices = {{needle_prompt(needle, n, at), ""}},
          .golds = {needle.number}};
}

Item make_ruler_vt(const Making& making, uint64_t number) {
  base::Random random({making.seed, number, 92});
  const auto example = draw_example(making, random);
  const auto chain = draw_chain(random, 5);
  const auto prompt = [&](int64_t n, const std::vector<int64_t>& places) {
    return example + chain_question(chain, n, places);
  };
  const int64_t room = making.length - making.answer_tokens;
  require_room(making,
               making.count_tokens(prompt(kLeastNoise, first_places())) + making.answer_tokens,
               number);
  int64_t n =
      most_noise(making, kLeastNoise, room, [&](int64_t m) { return prompt(m, first_places()); });
  auto places = draw_places(random, n);
  while (n > kLeastNoise && making.count_tokens(prompt(n, places)) > room)
    places = draw_places(random, --n);
  if (making.count_tokens(prompt(n, places)) > room) places = first_places();
  return {.where = fmt::format("item {}", number + 1),
          .choices = {{prompt(n, places), ""}},
          .golds = chain.names};
}

}  // namespace bmojo::eval
