#include "bmojo/eval/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "bmojo/eval/due.h"

// Shapes: B sequences, L tokens each, D width, V vocabulary.

namespace bmojo::eval {
namespace {

// A scored token.
struct Scored {
  int64_t place = 0;  // in the targets of its batch
  double nats = 0;    // -ln p of what was due
  bool right = false;
};

// What the scored tokens of a batch got, in their order; hidden [B, L, D].
std::vector<Scored> score_tokens(const LanguageModel& model, const data::Batch& batch,
                                 const float* hidden) {
  const int64_t D = model.config().hidden_size;
  std::vector<Scored> out;
  std::vector<Due> due;
  for (int64_t i = 0; i < std::ssize(batch.targets); ++i)
    if (const auto target = batch.targets[static_cast<size_t>(i)]; target != data::kNotScored) {
      out.push_back({.place = i});
      due.push_back({hidden + i * D, target});
    }
  const auto scores = score_due(model, due);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].nats = -static_cast<double>(scores.own[i]);
    out[i].right = scores.best[i] == due[i].id && !std::isnan(scores.own[i]);
  }
  return out;
}

// Counts, layer by layer, how many sources are in the set that their query saw.
class HeldCounter : public Observer {
 public:
  HeldCounter(const model::Config& config, const data::Batch& part)
      : layers_(eidetic_layers(config)), part_(part), counts_(layers_.size()) {}

  void on_piece(const PieceTold& piece) override {
    const auto at = std::ranges::lower_bound(layers_, piece.layer) - layers_.begin();
    const int64_t first = piece.first.sequence * part_.length + piece.first.column;
    for (size_t i = 0; i < piece.innovation.size(); ++i)
      if (const auto source = part_.sources[static_cast<size_t>(first) + i];
          source != data::kNoSource)
        counts_[static_cast<size_t>(at)] += std::ranges::binary_search(piece.seen, source);
  }

  const std::vector<int64_t>& counts() const { return counts_; }

 private:
  std::vector<int64_t> layers_;
  const data::Batch& part_;
  std::vector<int64_t> counts_;
};

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

std::vector<int64_t> eidetic_layers(const model::Config& config) {
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < config.num_layers; ++i)
    if (config.kind(i) == model::LayerKind::bmojo && config.eidetic_tokens > 0) layers.push_back(i);
  return layers;
}

BatchReader::BatchReader(const LanguageModel& model, int64_t num_sequences) : model_(model) {
  for (int64_t i = 0; i < num_sequences; ++i) memories_.push_back(model.begin());
}

const float* BatchReader::read(const data::Batch& part, Observer* observer) {
  const bool is_told = model_.config().eidetic_rule == "oracle" && !part.wanted.empty();
  const auto L = static_cast<size_t>(part.length);
  std::vector<Reading> readings;
  for (size_t i = 0; i < memories_.size(); ++i) {
    const auto of_sequence = [&](const std::vector<int64_t>& all) {
      return all.empty() ? std::span<const int64_t>() : std::span(all).subspan(i * L, L);
    };
    readings.push_back({.memory = memories_[i].get(),
                        .ids = of_sequence(part.ids),
                        .documents = of_sequence(part.documents),
                        .wanted = is_told ? &part.wanted[i] : nullptr});
  }
  hidden_.resize(part.ids.size() * static_cast<size_t>(model_.config().hidden_size));
  model_.forward(readings, hidden_.data(), observer);
  return hidden_.data();
}

Score evaluate(const LanguageModel& model, const data::Batch& batch, int64_t segment) {
  Score total;
  BatchReader reader(model, batch.num_sequences);
  for (int64_t from = 0; from < batch.length; from += segment) {
    const auto part = data::columns(batch, from, std::min(segment, batch.length - from));
    HeldCounter held(model.config(), part);
    const bool counts = !part.sources.empty() && !held.counts().empty();
    const float* hidden = reader.read(part, counts ? &held : nullptr);
    Score score;
    for (const auto& [place, nats, right] : score_tokens(model, part, hidden))
      score += {nats, 1, right};
    if (counts) score.num_held = held.counts();
    total += score;
  }
  return total;
}

TextScore evaluate_text(const LanguageModel& model, const data::TokenData& data,
                        const std::function<void(int64_t)>& progress, int64_t segment) {
  TextScore text;
  BatchReader reader(model, 1);
  const data::TokenRange all{0, data.num_tokens()};
  int64_t document = -1, document_start = 0;
  for (int64_t from = 0; from < all.end; from += segment) {
    auto part = data::empty_batch(1, std::min(segment, all.end - from), /*with_documents=*/true);
    data::read_in_order(data, all, from, data::sequence_of(part, 0));
    const auto scored = score_tokens(model, part, reader.read(part));
    auto next = scored.begin();
    for (int64_t t = 0; t < part.length; ++t) {
      if (part.documents[static_cast<size_t>(t)] != document) {
        document = part.documents[static_cast<size_t>(t)];
        document_start = from + t;
      }
      if (next == scored.end() || next->place != t) continue;
      const auto bucket =
          static_cast<size_t>(std::bit_width(static_cast<uint64_t>(from + t - document_start)));
      if (text.by_position.size() <= bucket) text.by_position.resize(bucket + 1);
      const Score one{next->nats, 1, next->right};
      text.by_position[bucket] += one;
      text.total += one;
      ++next;
    }
    progress(from + part.length);
  }
  return text;
}

}  // namespace bmojo::eval
