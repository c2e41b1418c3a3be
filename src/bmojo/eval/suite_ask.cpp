#include "bmojo/eval/suite_ask.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "bmojo/eval/greedy.h"
#include "bmojo/eval/likelihood.h"
#include "bmojo/eval/prompt.h"
#include "bmojo/eval/suite_tokens.h"

namespace bmojo::eval {
namespace {

using Groups = std::vector<std::vector<Asked>>;

Groups groups_of(const Asking& asking, std::span<const Item> items) {
  Groups groups;
  for (const auto& item : items)
    groups.push_back(questions(item, asking.suite.question, asking.model.config(), asking.tokenizer,
                               asking.max_length));
  return groups;
}

// Behind a beginning that was read before, where there is one.
std::vector<Answers> choose(const Asking& asking, std::span<const std::vector<Asked>> groups,
                            const Beginning* beginning) {
  std::vector<Answers> out;
  for (const auto& each : likelihoods(asking.model, groups, asking.between_parts, beginning))
    out.push_back(answers_of(asking.suite.question, each));
  return out;
}

Until until_of(const Asking& asking) {
  const auto& [measure, score, max_tokens, is_line] = asking.suite.answering;
  Until until{.max_tokens = max_tokens};
  if (is_line) until.stop = {"\n"};
  if (asking.model.config().eos_token_id < 0) until.ends = {asking.tokenizer.end_of_document()};
  return until;
}

std::vector<Answers> write(const Asking& asking, std::span<const Ids> prompts,
                           const Beginning* beginning) {
  std::vector<Continuation> texts(prompts.size());
  std::vector<Prompt> rest;
  for (size_t i = 0; i < prompts.size(); ++i) {
    texts[i].memory = beginning == nullptr ? asking.model.begin() : beginning->memory->copy();
    rest.push_back(
        {&texts[i], std::span(prompts[i]).subspan(beginning == nullptr ? 0 : beginning->size)});
  }
  read_together(asking.model, rest, [&] {
    if (asking.between_parts) asking.between_parts();
    return false;
  });
  std::vector<Answers> out;
  for (auto& written : write_greedily(asking.model, texts, until_of(asking), asking.tokenizer,
                                      asking.between_parts)) {
    const double log_p = std::accumulate(written.logprobs.begin(), written.logprobs.end(), 0.);
    Answer answer{{log_p, true, std::ssize(written.ids)}, std::move(written.text)};
    out.push_back({std::move(answer)});
  }
  return out;
}

// Some items are answered in the model's words, others by the likeliest of those that are given.
std::vector<Answers> answer(const Asking& asking, std::span<const std::vector<Asked>> groups,
                            const Beginning* beginning) {
  Groups choices;
  std::vector<Ids> prompts;
  for (const auto& group : groups)
    if (group[0].continuation.empty())
      prompts.push_back(group[0].context);
    else
      choices.push_back(group);
  const auto chosen = choose(asking, choices, beginning);
  const auto written = write(asking, prompts, beginning);
  std::vector<Answers> out;
  auto next_chosen = chosen.begin(), next_written = written.begin();
  for (const auto& group : groups)
    out.push_back(group[0].continuation.empty() ? *next_written++ : *next_chosen++);
  return out;
}

// Windows of several documents are read at once, and several of one.
std::vector<Answers> answer_documents(const Asking& asking, std::span<const Item> items) {
  Groups windows;
  std::vector<size_t> of;  // the item of each
  auto groups = groups_of(asking, items);
  for (size_t i = 0; i < groups.size(); ++i)
    for (auto& window : groups[i]) {
      windows.push_back({std::move(window)});
      of.push_back(i);
    }
  std::vector<std::vector<Likelihood>> got(items.size());
  for (size_t from = 0; from < windows.size(); from += asking.batch) {
    const auto some = std::span(windows).subspan(from);
    const auto count = std::min(asking.batch, some.size());
    const auto likely = likelihoods(asking.model, some.first(count), asking.between_parts);
    for (size_t i = 0; i < count; ++i) got[of[from + i]].push_back(likely[i][0]);
  }
  std::vector<Answers> out;
  for (const auto& each : got) out.push_back(answers_of(asking.suite.question, each));
  return out;
}

// How many of the first items are about the same document.
size_t count_alike(std::span<const Item> items) {
  if (!items[0].document) return 1;
  const auto other = std::ranges::find_if(
      items, [&](const Item& item) { return item.document != items[0].document; });
  return static_cast<size_t>(other - items.begin());
}

// How many tokens all contexts begin with in common; the last of a context is not among them:
// something is due behind it.
size_t count_common(const Groups& groups) {
  const auto& first = groups[0][0].context;
  size_t count = first.size() - 1;
  for (const auto& group : groups)
    for (const auto& [context, continuation] : group) {
      count = std::min(count, context.size() - 1);
      const auto begin = std::span(first).first(count);
      count = static_cast<size_t>(std::ranges::mismatch(begin, context).in1 - begin.begin());
    }
  return count;
}

}  // namespace

void ask(const Asking& asking, std::span<const Item> items,
         const std::function<void(std::span<const Answers> answers)>& take) {
  const bool is_document = asking.suite.question == Question::document;
  // Documents that are read whole take long: each is handed over as soon as it is done.
  const size_t most = is_document && asking.max_length == 0 ? 1 : asking.batch;
  while (!items.empty()) {
    const size_t alike = count_alike(items);
    size_t count = alike;
    if (alike == 1)
      while (count < std::min(most, items.size()) && count_alike(items.subspan(count)) == 1)
        ++count;
    const auto some = items.first(count);
    items = items.subspan(count);
    if (is_document) {
      take(answer_documents(asking, some));
      continue;
    }
    const auto groups = groups_of(asking, some);
    Beginning beginning;
    if (alike > 1) {
      const auto ids = std::span(groups[0][0].context).first(count_common(groups));
      beginning = read_beginning(asking.model, ids, asking.between_parts);
    }
    for (size_t from = 0; from < groups.size(); from += most) {
      const auto part = std::span(groups).subspan(from);
      take(answer(asking, part.first(std::min(most, part.size())),
                  alike > 1 ? &beginning : nullptr));
    }
  }
}

}  // namespace bmojo::eval
