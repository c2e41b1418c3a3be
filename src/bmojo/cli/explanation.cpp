#include "bmojo/cli/explanation.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <span>

#include "bmojo/base/error.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/nn/attention_weights.h"
#include "bmojo/train/evaluate.h"

namespace bmojo {
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

Positions numbers(const at::Tensor& x) {
  const auto copy = x.contiguous();
  return {copy.data_ptr<int64_t>(), copy.data_ptr<int64_t>() + copy.numel()};
}

// [m], with places that hold nothing.
Positions members(const at::Tensor& positions) {
  auto out = numbers(positions);
  std::erase(out, nn::kNowhere);
  return out;
}

// Adds what a layer did in one call.
void follow(History& history, const nn::Output& out, size_t layer, int64_t window) {
  const auto& innovation = out.innovations[layer];
  if (!innovation.defined()) return;
  const auto epsilon = innovation[0].to(at::kFloat).contiguous();
  history.innovation.insert(history.innovation.end(), epsilon.data_ptr<float>(),
                            epsilon.data_ptr<float>() + epsilon.numel());
  for (int64_t i = 0; i < std::ssize(out.layout->pieces); ++i)
    // A call may begin inside a chunk, whose set is then known.
    if (const auto at = out.layout->pieces[static_cast<size_t>(i)].position; at % window == 0)
      history.sets.push_back({at, members(out.visible[layer][i])});
  history.kept = members(out.state.layers[layer].running.position[0]);
}

// Members of a set that the next one does not have, with the position at which that was found.
Json dropped(const History& history) {
  Json out = Json::array();
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

Json layer_json(const History& history, int64_t layer, LayerKind kind) {
  Json sets = Json::array();
  for (const auto& set : history.sets)
    sets.push_back({{"from", set.from}, {"positions", set.positions}});
  return {{"layer", layer},
          {"kind", kKinds[static_cast<size_t>(kind)]},
          {"innovation", history.innovation},
          {"kept", history.kept},
          {"dropped", dropped(history)},
          {"sets", sets}};
}

// Where the attention of one token went: the share of each memory, and the largest keys. All heads
// count alike.
Json attention_json(const nn::AttentionWeights& attention) {
  const auto mean = attention.weight.mean(0).to(at::kDouble).contiguous();
  const std::span weight(mean.data_ptr<double>(), static_cast<size_t>(mean.numel()));
  std::array<double, kMemories.size()> share{};
  for (size_t i = 0; i < weight.size(); ++i)
    share[static_cast<size_t>(attention.keys[i].memory)] += weight[i];
  Json shares = Json::object();
  for (size_t i = 0; i < share.size(); ++i) shares[kMemories[i]] = share[i];
  std::vector<size_t> order(weight.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return weight[a] > weight[b]; });
  Json keys = Json::array();
  for (const auto i : std::span(order).first(std::min(kKeysShown, order.size())))
    keys.push_back({{"memory", kMemories[static_cast<size_t>(attention.keys[i].memory)]},
                    {"position", attention.keys[i].position},
                    {"weight", weight[i]}});
  return {{"attention", shares}, {"keys", keys}};
}

// Reads a sequence segment by segment and asks it where answers are due.
class Reader {
 public:
  Reader(const nn::Model& model, const train::Batch& sequence)
      : model_(model),
        sequence_(sequence),
        targets_(numbers(sequence.targets[0])),
        histories_(model.layers().size()) {
    if (sequence.sources.defined()) sources_ = numbers(sequence.sources[0]);
    for (int64_t t = 0; t < std::ssize(targets_); ++t)
      if (targets_[t] != kNotScored) asked_.push_back(t);
    if (asked_.empty()) asked_.push_back(std::ssize(targets_) - 1);
  }

  Json read() {
    nn::CallOptions call;
    call.keep_attention = true;
    read_segments(model_, sequence_, call, [&](const nn::Output& out, int64_t from, int64_t count) {
      for (size_t i = 0; i < histories_.size(); ++i)
        follow(histories_[i], out, i, model_.config().window);
      for (const auto t : asked_)
        if (t >= from && t < from + count) answers_.push_back(answer(out, t, t - from));
    });
    const auto& config = model_.config();
    Json layers = Json::array();
    for (size_t i = 0; i < histories_.size(); ++i)
      layers.push_back(layer_json(histories_[i], static_cast<int64_t>(i), config.kind(i)));
    return {{"memory",
             {{"eidetic_tokens", config.eidetic_tokens},
              {"fading_tokens", config.fading_tokens},
              {"window", config.window}}},
            {"layers", layers},
            {"answers", answers_}};
  }

 private:
  // The token at `position` stands at `column` of the call.
  Json answer(const nn::Output& out, int64_t position, int64_t column) const {
    const auto logits = model_.logits(out.hidden[0][column]);
    if (!logits.isfinite().all().item<bool>())
      throw RunError(fmt::format(
          "explain: logits must be finite, got NaN or infinity at position {}", position));
    const auto p = at::softmax(logits.to(at::kDouble), -1);
    const int64_t predicted = p.argmax().item<int64_t>(), due = targets_[position];
    const bool is_due = due != kNotScored;
    const int64_t source = sources_.empty() ? kNoSource : sources_[position];
    Json layers = Json::array();
    for (size_t i = 0; i < histories_.size(); ++i)
      if (out.attentions[i].q.defined()) {
        Json one = {{"layer", i}, {"held", nullptr}};
        if (source != kNoSource) one["held"] = held(histories_[i], position, source);
        one.update(
            attention_json(nn::attention_weights(out.attentions[i], *out.layout, 0, column)));
        layers.push_back(one);
      }
    return {{"position", position},
            {"due", is_due ? Json(due) : Json()},
            {"predicted", predicted},
            {"probability", p[is_due ? due : predicted].item<double>()},
            {"source", source != kNoSource ? Json(source) : Json()},
            {"layers", layers}};
  }

  // Whether `source` was in the set that the token at `position` saw.
  bool held(const History& history, int64_t position, int64_t source) const {
    if (history.sets.empty()) return false;
    const auto& set = history.sets[static_cast<size_t>(position / model_.config().window)];
    return std::ranges::binary_search(set.positions, source);
  }

  const nn::Model& model_;
  const train::Batch& sequence_;
  Positions targets_, sources_, asked_;
  std::vector<History> histories_;  // a layer each
  Json answers_ = Json::array();
};

}  // namespace

void read_segments(
    const nn::Model& model, const train::Batch& sequence, nn::CallOptions call,
    const std::function<void(const nn::Output& out, int64_t from, int64_t count)>& visit) {
  const int64_t length = sequence.ids.size(1);
  nn::State state;
  for (int64_t from = 0; from < length; from += train::kEvalSegment) {
    const int64_t count = std::min(train::kEvalSegment, length - from);
    const auto part = train::columns(sequence, from, count);
    call.wanted = train::wanted_of(model.config(), part);
    auto out = model.forward(part.ids, state, call);
    visit(out, from, count);
    state = std::move(out.state);
    check_interrupted();
  }
}

Json explain(const nn::Model& model, const train::Batch& sequence) {
  torch::NoGradGuard no_grad;
  return Reader(model, sequence).read();
}

int64_t telling_layer(const Config& config) {
  for (const auto kind : {LayerKind::bmojo, LayerKind::attention})
    for (int64_t i = config.num_layers; i-- > 0;)
      if (config.kind(i) == kind) return i;
  return config.num_layers - 1;
}

}  // namespace bmojo
