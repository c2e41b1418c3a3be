#include "bmojo/eval/likelihood.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>

#include "bmojo/base/error.h"
#include "bmojo/eval/due.h"

namespace bmojo::eval {
namespace {

constexpr size_t kPart = 512;  // tokens that are read at once, or one of each text

// A text that is read on. Behind each of its last tokens one of `due` comes.
struct Text {
  std::unique_ptr<Memory> memory;
  std::span<const int64_t> ids, due = {};
  Likelihood* out = nullptr;
  size_t done = 0;

  bool is_due(size_t at) const { return at + due.size() >= ids.size(); }
  int64_t behind(size_t at) const { return due[at + due.size() - ids.size()]; }
};

// Adds what the tokens got that were due in the parts just read; hidden [tokens, D].
void add_part(const LanguageModel& model, std::span<Text* const> texts,
              std::span<const Reading> parts, const float* hidden) {
  std::vector<Due> due;
  std::vector<Likelihood*> of;
  for (size_t i = 0; i < texts.size(); ++i)
    for (size_t j = 0; j < parts[i].ids.size(); ++j, hidden += model.config().hidden_size)
      if (const size_t at = texts[i]->done + j; texts[i]->is_due(at)) {
        due.push_back({hidden, texts[i]->behind(at)});
        of.push_back(texts[i]->out);
      }
  const auto scores = score_due(model, due);
  for (size_t i = 0; i < due.size(); ++i) {
    if (!std::isfinite(scores.own[i]))
      throw base::RunError("eval: log-probabilities must be finite, got NaN or infinity");
    *of[i] += {static_cast<double>(scores.own[i]), scores.best[i] == due[i].id, 1};
  }
}

void read_all(const LanguageModel& model, std::vector<Text>& texts,
              const std::function<void()>& between_parts) {
  std::vector<Text*> open;
  std::vector<Reading> parts;
  std::vector<float> hidden;
  while (true) {
    open.clear();
    parts.clear();
    for (auto& text : texts)
      if (text.done < text.ids.size()) open.push_back(&text);
    if (open.empty()) return;
    const size_t most = std::max<size_t>(1, kPart / open.size());
    size_t total = 0;
    for (const auto* text : open) {
      const auto rest = text->ids.subspan(text->done);
      parts.push_back({text->memory.get(), rest.first(std::min(most, rest.size()))});
      total += parts.back().ids.size();
    }
    hidden.resize(total * static_cast<size_t>(model.config().hidden_size));
    model.forward(parts, hidden.data());
    add_part(model, open, parts, hidden.data());
    for (size_t i = 0; i < open.size(); ++i) open[i]->done += parts[i].ids.size();
    if (between_parts) between_parts();
  }
}

// What a model reads to answer: the last token has only to be predicted.
Ids read_ids(const Asked& asked) {
  Ids ids = asked.context;
  ids.insert(ids.end(), asked.continuation.begin(), asked.continuation.end());
  ids.pop_back();
  return ids;
}

// How many tokens a group's texts have in common before the first one behind which something is
// due. What is asked once is shared with nothing.
size_t count_shared(const std::vector<Asked>& group, std::span<const Ids> ids) {
  if (group.size() < 2) return 0;
  size_t count = group[0].context.size() - 1;
  for (size_t i = 1; i < group.size(); ++i) {
    count = std::min(count, group[i].context.size() - 1);
    const auto begin = std::span(ids[0]).first(count);
    count = static_cast<size_t>(std::ranges::mismatch(begin, ids[i]).in1 - begin.begin());
  }
  return count;
}

}  // namespace

Likelihood& Likelihood::operator+=(const Likelihood& other) {
  log_p += other.log_p;
  is_greedy = is_greedy && other.is_greedy;
  num_tokens += other.num_tokens;
  return *this;
}

Beginning read_beginning(const LanguageModel& model, std::span<const int64_t> ids,
                         const std::function<void()>& between_parts) {
  std::vector<Text> texts;
  texts.push_back({model.begin(), ids});
  read_all(model, texts, between_parts);
  return {ids.size(), std::move(texts[0].memory)};
}

std::vector<std::vector<Likelihood>> likelihoods(const LanguageModel& model,
                                                 std::span<const std::vector<Asked>> groups,
                                                 const std::function<void()>& between_parts,
                                                 const Beginning* beginning) {
  const size_t size = beginning == nullptr ? 0 : beginning->size;
  std::vector<std::vector<Ids>> ids(groups.size());
  std::vector<Text> shared;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const auto& asked : groups[g]) {
      base::require(!asked.context.empty() && !asked.continuation.empty(),
                    "eval: context and continuation must have tokens, got {} and {}",
                    asked.context.size(), asked.continuation.size());
      ids[g].push_back(read_ids(asked));
    }
    const size_t count = std::max(size, count_shared(groups[g], ids[g]));
    shared.push_back({beginning == nullptr ? model.begin() : beginning->memory->copy(),
                      std::span(ids[g][0]).first(count).subspan(size)});
  }
  read_all(model, shared, between_parts);
  std::vector<std::vector<Likelihood>> out(groups.size());
  std::vector<Text> texts;
  for (size_t g = 0; g < groups.size(); ++g) {
    out[g].resize(groups[g].size());
    for (size_t i = 0; i < groups[g].size(); ++i) {
      const bool is_last = i + 1 == groups[g].size();
      texts.push_back({is_last ? std::move(shared[g].memory) : shared[g].memory->copy(),
                       std::span(ids[g][i]).subspan(size + shared[g].ids.size()),
                       groups[g][i].continuation, &out[g][i]});
    }
  }
  read_all(model, texts, between_parts);
  return out;
}

}  // namespace bmojo::eval
