#include "bmojo/data/packing.h"

#include <algorithm>
#include <numeric>

#include "bmojo/base/error.h"
#include "bmojo/base/random.h"
#include "bmojo/data/task.h"

namespace bmojo::data {
namespace {

// The document that holds a token: the last that begins at or before it.
int64_t document_at(const TokenData& data, int64_t token) {
  int64_t low = 0, high = data.num_documents() - 1;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (data.document(middle).first <= token)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

// Tokens [from, from + count) of the document that ends at `end`, into out[at …].
void read_part(const TokenData& data, int64_t from, int64_t count, int64_t end, int64_t id,
               const Reading& out, int64_t at) {
  const auto ids = out.ids.subspan(at, count), targets = out.targets.subspan(at, count);
  data.read(from, ids);
  std::ranges::copy(ids.subspan(1), targets.begin());
  targets.back() = kNotScored;
  if (from + count < end) data.read(from + count, targets.subspan(count - 1));
  std::ranges::fill(out.documents.subspan(at, count), id);
}

}  // namespace

Packing::Packing(const TokenData& data, TokenRange tokens, int64_t context, int64_t num_sequences,
                 uint64_t seed)
    : data_(data),
      num_tokens_(tokens.end - tokens.begin),
      context_(context),
      num_sequences_(num_sequences),
      seed_(seed) {
  const int64_t needed = context > 0 ? context + 1 : 2 * num_sequences;
  base::require(num_tokens_ >= needed, "data: must hold at least {} tokens for {}, got {}", needed,
                context > 0 ? fmt::format("a context of {}", context)
                            : fmt::format("{} streams", num_sequences),
                num_tokens_);
  for (int64_t i = document_at(data, tokens.begin); i < data.num_documents(); ++i) {
    const auto [begin, end] = data.document(i);
    const TokenRange part{std::max(begin, tokens.begin), std::min(end, tokens.end)};
    if (part.begin >= part.end) break;
    documents_.push_back(part);
  }
  // One piece fewer than would fit: the offset then varies over a whole piece.
  if (context > 0) num_pieces_ = std::max<int64_t>((num_tokens_ - 1) / context - 1, 1);
}

const Packing::Epoch& Packing::epoch(int64_t number) const {
  if (const auto it = epochs_.find(number); it != epochs_.end()) return it->second;
  while (epochs_.size() >= 2) epochs_.erase(epochs_.begin());
  auto& epoch = epochs_[number];
  base::Random random({seed_, static_cast<uint64_t>(number)});
  epoch.order.resize(documents_.size());
  std::iota(epoch.order.begin(), epoch.order.end(), 0);
  random.shuffle(epoch.order);
  epoch.starts.push_back(0);
  for (const auto document : epoch.order)
    epoch.starts.push_back(epoch.starts.back() + documents_[document].end -
                           documents_[document].begin);
  if (context_ == 0) return epoch;
  epoch.pieces.resize(num_pieces_);
  std::iota(epoch.pieces.begin(), epoch.pieces.end(), 0);
  random.shuffle(epoch.pieces);
  const int64_t slack = std::min(num_tokens_ - 1 - num_pieces_ * context_, context_ - 1);
  epoch.offset = static_cast<int64_t>(random.below(static_cast<uint64_t>(slack + 1)));
  return epoch;
}

void Packing::read(int64_t sequence, int64_t from, const Reading& out) const {
  const auto length = std::ssize(out.ids), num_documents = std::ssize(documents_);
  if (context_ > 0) {
    const int64_t turn = from / context_ * num_sequences_ + sequence;
    const int64_t number = turn / num_pieces_, within = from % context_;
    base::require(within + length <= context_,
                  "packing: a reading must stay within {} tokens, got {}", context_,
                  within + length);
    const auto& pieces = epoch(number);
    const int64_t start = pieces.offset + pieces.pieces[turn % num_pieces_] * context_ + within;
    return read_epoch(number, start, turn * num_documents, out);
  }
  int64_t at = sequence * num_tokens_ / num_sequences_ + from;
  for (int64_t done = 0; done < length;) {
    const int64_t number = at / num_tokens_, start = at % num_tokens_;
    const int64_t count = std::min(length - done, num_tokens_ - start);
    const auto part = [&](std::span<int64_t> whole) { return whole.subspan(done, count); };
    read_epoch(number, start, number * num_documents,
               {part(out.ids), part(out.targets), part(out.documents)});
    done += count;
    at += count;
  }
}

void Packing::read_epoch(int64_t number, int64_t from, int64_t first_id, const Reading& out) const {
  const auto& [order, starts, pieces, offset] = epoch(number);
  auto place = std::ranges::upper_bound(starts, from) - starts.begin() - 1;
  for (int64_t done = 0; done < std::ssize(out.ids); ++place) {
    const auto& document = documents_[order[place]];
    const int64_t begin = document.begin + from + done - starts[place];
    const int64_t count = std::min<int64_t>(std::ssize(out.ids) - done, document.end - begin);
    read_part(data_, begin, count, document.end, first_id + place, out, done);
    done += count;
  }
}

void read_in_order(const TokenData& data, TokenRange bounds, int64_t from, const Reading& out) {
  auto number = document_at(data, from);
  for (int64_t done = 0; done < std::ssize(out.ids); ++number) {
    const int64_t begin = from + done;
    const int64_t end = std::min(data.document(number).second, bounds.end);
    const int64_t count = std::min<int64_t>(std::ssize(out.ids) - done, end - begin);
    read_part(data, begin, count, end, number, out, done);
    done += count;
  }
}

}  // namespace bmojo::data
