#include "bmojo/train/evaluate.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

namespace bmojo::train {
namespace {

constexpr int64_t kLogitsAtOnce = int64_t{1} << 23;  // floats: 32 MB

// Of the scored positions of a segment, in order.
struct PositionScores {
  at::Tensor place;        // [n] index into the flattened targets
  at::Tensor nats, right;  // [n] -ln p of the token due, double; whether it was the most likely
  std::vector<int64_t> num_held;

  Score total() const {
    return {nats.sum().item<double>(), place.size(0), right.sum().item<int64_t>(), num_held};
  }
};

// For each layer with eidetic memory: how many of the sources are in the set their query saw.
std::vector<int64_t> count_held(const nn::Output& out, const at::Tensor& sources_BL) {
  std::vector<int64_t> counts;
  if (!sources_BL.defined()) return counts;
  const auto copy = sources_BL.contiguous();
  const auto sources = copy.accessor<int64_t, 2>();
  for (const auto& set : out.visible) {
    if (!set.defined()) continue;
    int64_t count = 0;
    const auto visible = set.accessor<int64_t, 2>();
    for (int64_t i = 0; i < std::ssize(out.layout->pieces); ++i) {
      const auto& piece = out.layout->pieces[static_cast<size_t>(i)];
      const std::span members(visible[i].data(), static_cast<size_t>(set.size(1)));
      for (int64_t t = piece.column; t < piece.column + piece.count; ++t)
        if (const auto source = sources[piece.row][t]; source != kNoSource)
          count += std::ranges::find(members, source) != members.end();
    }
    counts.push_back(count);
  }
  return counts;
}

// Reads a segment and moves the state behind it.
PositionScores score_segment(const nn::Model& model, const Batch& part, nn::State& state) {
  nn::CallOptions call;
  call.documents = part.documents;
  call.wanted = wanted_of(model.config(), part);
  auto out = model.forward(part.ids, state, call);
  state = std::move(out.state);
  const auto targets = part.targets.flatten();
  const auto place = (targets >= 0).nonzero().squeeze(1);
  const auto hidden = out.hidden.flatten(0, 1);
  std::vector<at::Tensor> nats = {at::zeros({0}, at::kDouble)};
  std::vector<at::Tensor> right = {at::zeros({0}, at::kBool)};
  const int64_t block = std::max<int64_t>(kLogitsAtOnce / model.config().vocab_size, 1);
  for (const auto& at_once : place.split(block)) {
    const auto due = targets.index_select(0, at_once);
    const auto log_p = at::log_softmax(model.logits(hidden.index_select(0, at_once)), -1);
    nats.push_back(-log_p.gather(1, due.unsqueeze(1)).squeeze(1).to(at::kDouble));
    right.push_back(log_p.argmax(-1).eq(due));
  }
  return {place, at::cat(nats), at::cat(right), count_held(out, part.sources)};
}

}  // namespace

std::string loss_text(double loss) {
  if (!std::isfinite(loss)) return "not finite";
  return loss < 1000 ? fmt::format("{:.4f}", loss) : fmt::format("{:.3e}", loss);
}

std::vector<double> Score::held() const {
  std::vector<double> shares;
  for (const auto count : num_held)
    shares.push_back(static_cast<double>(count) / static_cast<double>(num_scored));
  return shares;
}

Score& Score::operator+=(const Score& other) {
  nats += other.nats;
  num_scored += other.num_scored;
  num_right += other.num_right;
  num_held.resize(std::max(num_held.size(), other.num_held.size()));
  for (size_t i = 0; i < other.num_held.size(); ++i) num_held[i] += other.num_held[i];
  return *this;
}

Score score(const nn::Model& model, const Batch& batch) {
  torch::NoGradGuard no_grad;
  Score total;
  nn::State state;
  const int64_t length = batch.ids.size(1);
  for (int64_t from = 0; from < length; from += kEvalSegment) {
    const auto part = columns(batch, from, std::min(kEvalSegment, length - from));
    total += score_segment(model, part, state).total();
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
    auto part = empty_batch(1, std::min(kEvalSegment, all.end - from), /*with_documents=*/true);
    read_in_order(data, all, from, row_of(part, 0));
    const auto scores = score_segment(model, part, state);
    const auto* place = scores.place.data_ptr<int64_t>();
    const int64_t count = part.ids.size(1);
    for (int64_t t = 0, i = 0; t < count; ++t) {
      if (part.documents[t] != document) {
        document = part.documents[t];
        document_start = from + t;
      }
      if (i == scores.place.size(0) || place[i] != t) continue;
      const int64_t bucket = std::bit_width(static_cast<uint64_t>(from + t - document_start));
      if (std::ssize(text.by_position) <= bucket) text.by_position.resize(bucket + 1);
      const Score one{scores.nats.data_ptr<double>()[i], 1, scores.right.data_ptr<bool>()[i]};
      text.by_position[bucket] += one;
      text.total += one;
      ++i;
    }
    progress(from + count);
  }
  return text;
}

}  // namespace bmojo::train
