#include "bmojo/eval/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <span>

#include "bmojo/base/error.h"
#include "bmojo/eval/evaluate.h"

namespace bmojo::eval {
namespace {

using Positions = std::vector<int64_t>;

constexpr size_t kKeysShown = 8;

// What a layer held, chunk by chunk.
struct History {
  struct Set {
    int64_t from;         // the chunk's first position
    Positions positions;  // in order of time
  };
  std::vector<float> innovation;
  std::vector<Set> sets;
  Positions kept;  // at the end
};

// Members of a set that the next one does not have, with the position at which that was found.
base::Json dropped(const History& history) {
  base::Json out = base::Json::array();
  for (size_t i = 0; i < history.sets.size(); ++i) {
    const bool last = i + 1 == history.sets.size();
    const auto& next = last ? history.kept : history.sets[i + 1].positions;
    const int64_t at = last ? std::ssize(history.innovation) : history.sets[i + 1].from;
    Positions gone;
    std::ranges::set_difference(history.sets[i].positions, next, std::back_inserter(gone));
    for (const auto position : gone) out.push_back({{"position", position}, {"left_at", at}});
  }
  return out;
}

base::Json layer_json(const History& history, int64_t layer, model::LayerKind kind) {
  base::Json sets = base::Json::array();
  for (const auto& set : history.sets)
    sets.push_back({{"from", set.from}, {"positions", set.positions}});
  return {{"layer", layer},
          {"kind", kKinds[static_cast<size_t>(kind)]},
          {"innovation", history.innovation},
          {"kept", history.kept},
          {"dropped", dropped(history)},
          {"sets", sets}};
}

// Of each key, all heads counting alike.
std::vector<double> mean_weight(const AttentionTold& told) {
  std::vector<double> mean(told.keys.size());
  for (size_t i = 0; i < told.weight.size(); ++i)
    mean[i % mean.size()] += told.weight[i] / static_cast<double>(told.num_heads);
  return mean;
}

// Where the attention of one token went: the share of each memory, and the largest keys.
base::Json attention_json(const AttentionTold& told) {
  const auto weight = mean_weight(told);
  std::array<double, kMemories.size()> share{};
  for (size_t i = 0; i < weight.size(); ++i)
    share[static_cast<size_t>(told.keys[i].memory)] += weight[i];
  base::Json shares = base::Json::object();
  for (size_t i = 0; i < share.size(); ++i) shares[kMemories[i]] = share[i];
  std::vector<size_t> order(weight.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return weight[a] > weight[b]; });
  base::Json keys = base::Json::array();
  for (const auto i : std::span(order).first(std::min(kKeysShown, order.size())))
    keys.push_back({{"memory", kMemories[static_cast<size_t>(told.keys[i].memory)]},
                    {"position", told.keys[i].position},
                    {"weight", weight[i]}});
  return {{"attention", shares}, {"keys", keys}};
}

// Reads a sequence segment by segment and asks it where answers are due.
class Reader : public Observer {
 public:
  Reader(const LanguageModel& model, const data::Batch& sequence)
      : model_(model),
        sequence_(sequence),
        histories_(static_cast<size_t>(model.config().num_layers)) {
    const auto& targets = sequence.targets;
    for (int64_t t = 0; t < std::ssize(targets); ++t)
      if (targets[static_cast<size_t>(t)] != data::kNotScored) asked_.push_back(t);
    if (asked_.empty()) asked_.push_back(std::ssize(targets) - 1);
  }

  base::Json read() {
    const auto& config = model_.config();
    BatchReader reader(model_, 1);
    for (from_ = 0; from_ < sequence_.length; from_ += kEvalSegment) {
      const int64_t count = std::min(kEvalSegment, sequence_.length - from_);
      const float* hidden = reader.read(data::columns(sequence_, from_, count), this);
      for (const auto t : asked_)
        if (t >= from_ && t < from_ + count)
          answers_.push_back(answer(t, hidden + (t - from_) * config.hidden_size));
    }
    base::Json layers = base::Json::array();
    for (size_t i = 0; i < histories_.size(); ++i) {
      const auto layer = static_cast<int64_t>(i);
      layers.push_back(layer_json(histories_[i], layer, config.kind(layer)));
    }
    return {{"memory",
             {{"eidetic_tokens", config.eidetic_tokens},
              {"fading_tokens", config.fading_tokens},
              {"window", config.window}}},
            {"layers", layers},
            {"answers", answers_}};
  }

  void on_piece(const PieceTold& piece) override {
    auto& history = histories_[static_cast<size_t>(piece.layer)];
    history.innovation.insert(history.innovation.end(), piece.innovation.begin(),
                              piece.innovation.end());
    // A piece may begin inside a chunk, whose set is then known.
    if (piece.first.position % model_.config().window == 0)
      history.sets.push_back({piece.first.position, {piece.seen.begin(), piece.seen.end()}});
    history.kept.assign(piece.kept.begin(), piece.kept.end());
  }
  bool asks_attention() const override { return true; }
  bool asks_attention(int64_t /*sequence*/, int64_t column) const override {
    return std::ranges::binary_search(asked_, from_ + column);
  }
  void on_attention(const AttentionTold& told) override {
    attention_[{told.query.position, told.layer}] = attention_json(told);
  }

 private:
  // Of the token at `position`, whose hidden state is [D].
  base::Json answer(int64_t position, const float* hidden) {
    std::vector<float> logits(static_cast<size_t>(model_.config().vocab_size));
    model_.logits(hidden, 1, logits.data());
    if (!std::ranges::all_of(logits, [](float x) { return std::isfinite(x); }))
      throw base::RunError(fmt::format(
          "explain: logits must be finite, got NaN or infinity at position {}", position));
    const auto at = static_cast<size_t>(position);
    const auto best = std::ranges::max_element(logits);
    const int64_t predicted = best - logits.begin(), due = sequence_.targets[at];
    const bool is_due = due != data::kNotScored;
    const int64_t source = sequence_.sources.empty() ? data::kNoSource : sequence_.sources[at];
    return {{"position", position},
            {"due", is_due ? base::Json(due) : base::Json()},
            {"predicted", predicted},
            {"probability", probability(logits, *best, is_due ? due : predicted)},
            {"source", source != data::kNoSource ? base::Json(source) : base::Json()},
            {"layers", layers_of(position, source)}};
  }

  static double probability(const std::vector<float>& logits, float largest, int64_t id) {
    const auto term = [&](float x) { return std::exp(static_cast<double>(x - largest)); };
    double sum = 0;
    for (const auto x : logits) sum += term(x);
    return term(logits[static_cast<size_t>(id)]) / sum;
  }

  // What each layer with attention did at `position`.
  base::Json layers_of(int64_t position, int64_t source) const {
    base::Json layers = base::Json::array();
    for (size_t i = 0; i < histories_.size(); ++i) {
      const auto told = attention_.find({position, static_cast<int64_t>(i)});
      if (told == attention_.end()) continue;
      base::Json one = {{"layer", i}, {"held", nullptr}};
      if (source != data::kNoSource) one["held"] = held(histories_[i], position, source);
      one.update(told->second);
      layers.push_back(one);
    }
    return layers;
  }

  // Whether `source` was in the set that the token at `position` saw.
  bool held(const History& history, int64_t position, int64_t source) const {
    if (history.sets.empty()) return false;
    const auto& set = history.sets[static_cast<size_t>(position / model_.config().window)];
    return std::ranges::binary_search(set.positions, source);
  }

  const LanguageModel& model_;
  const data::Batch& sequence_;
  Positions asked_;
  int64_t from_ = 0;                // position of the call's first token
  std::vector<History> histories_;  // a layer each
  std::map<std::pair<int64_t, int64_t>, base::Json> attention_;  // by position and layer
  base::Json answers_ = base::Json::array();
};

}  // namespace

base::Json explain(const LanguageModel& model, const data::Batch& sequence) {
  return Reader(model, sequence).read();
}

int64_t telling_layer(const model::Config& config) {
  for (const auto kind : {model::LayerKind::bmojo, model::LayerKind::attention})
    for (int64_t i = config.num_layers; i-- > 0;)
      if (config.kind(i) == kind) return i;
  return config.num_layers - 1;
}

}  // namespace bmojo::eval
