#include "bmojo/train/evaluate.h"

#include <torch/torch.h>

#include <bit>

namespace bmojo::train {
namespace {

constexpr int64_t kLogitsAtOnce = int64_t{1} << 23;  // floats: 32 MB

// For scored positions: -ln p of the token due, and whether it was the most likely.
struct PositionScores {
  at::Tensor nats, right;  // [n] double, bool
};

PositionScores position_scores(const nn::Model& model, const at::Tensor& hidden,
                               const at::Tensor& targets) {
  std::vector<at::Tensor> nats, right;
  const int64_t block = std::max<int64_t>(kLogitsAtOnce / model.config().vocab_size, 1);
  for (int64_t from = 0; from < targets.size(0); from += block) {
    const int64_t count = std::min(block, targets.size(0) - from);
    const auto due = targets.narrow(0, from, count);
    const auto log_p = at::log_softmax(model.logits(hidden.narrow(0, from, count)), -1);
    nats.push_back(-log_p.gather(1, due.unsqueeze(1)).squeeze(1).to(at::kDouble));
    right.push_back(log_p.argmax(-1).eq(due));
  }
  if (nats.empty()) return {at::zeros({0}, at::kDouble), at::zeros({0}, at::kBool)};
  return {at::cat(nats), at::cat(right)};
}

}  // namespace

Score& Score::operator+=(const Score& other) {
  nats += other.nats;
  num_scored += other.num_scored;
  num_right += other.num_right;
  return *this;
}

Score score(const nn::Model& model, const Batch& batch) {
  torch::NoGradGuard no_grad;
  Score total;
  nn::State state;
  const int64_t length = batch.ids.size(1);
  for (int64_t from = 0; from < length; from += kEvalSegment) {
    const auto part = columns(batch, from, std::min(kEvalSegment, length - from));
    nn::CallOptions call;
    call.documents = part.documents;
    auto out = model.forward(part.ids, state, call);
    const auto targets = part.targets.flatten();
    const auto scored = (targets >= 0).nonzero().squeeze(1);
    const auto [nats, right] = position_scores(
        model, out.hidden.flatten(0, 1).index_select(0, scored), targets.index_select(0, scored));
    total += {nats.sum().item<double>(), scored.size(0), right.sum().item<int64_t>()};
    state = std::move(out.state);
  }
  return total;
}

TextScore score_text(const nn::Model& model, const TokenData& data,
                     const std::function<void(int64_t)>& progress) {
  torch::NoGradGuard no_grad;
  TextScore text;
  nn::State state;
  const TokenRange all{0, data.num_tokens()};
  int64_t document = -1, document_start = 0;
  for (int64_t from = 0; from < all.end; from += kEvalSegment) {
    const int64_t count = std::min(kEvalSegment, all.end - from);
    const auto ids = at::empty({1, count}, at::kLong), targets = at::empty({1, count}, at::kLong);
    nn::CallOptions call;
    call.documents.resize(count);
    const auto span = [&](const at::Tensor& x) { return std::span(x.data_ptr<int64_t>(), count); };
    read_in_order(data, all, from, {span(ids), span(targets), call.documents});
    auto out = model.forward(ids, state, call);
    state = std::move(out.state);
    const auto due = targets.flatten();
    const auto scored = (due >= 0).nonzero().squeeze(1);
    const auto [nats, right] =
        position_scores(model, out.hidden[0].index_select(0, scored), due.index_select(0, scored));
    const auto* place = scored.data_ptr<int64_t>();
    for (int64_t t = 0, i = 0; t < count; ++t) {
      if (call.documents[t] != document) {
        document = call.documents[t];
        document_start = from + t;
      }
      if (i == scored.size(0) || place[i] != t) continue;
      const int64_t bucket = std::bit_width(static_cast<uint64_t>(from + t - document_start));
      if (std::ssize(text.by_position) <= bucket) text.by_position.resize(bucket + 1);
      const Score one{nats.data_ptr<double>()[i], 1, right.data_ptr<bool>()[i]};
      text.by_position[bucket] += one;
      text.total += one;
      ++i;
    }
    progress(from + count);
  }
  return text;
}

}  // namespace bmojo::train
