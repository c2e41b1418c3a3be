#include "bmojo/data/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <queue>
#include <span>

namespace bmojo::data {
namespace {

// Below, looking at every pair for each merge is faster than a queue.
constexpr size_t kShort = 40;

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

uint64_t mixed(uint64_t x) { return x * 0x9e3779b97f4a7c15u; }

// The first `size` of 32 bytes.
std::array<uint64_t, 4> first_bytes(const char* p, size_t size, size_t readable) {
  std::array<uint64_t, 4> key{};
  if (readable < sizeof(key)) {
    std::memcpy(key.data(), p, size);
    return key;
  }
  std::memcpy(key.data(), p, sizeof(key));
  for (size_t i = 0; i < key.size(); ++i) {
    const size_t kept = size > 8 * i ? size - 8 * i : 0;
    if (kept < 8) key[i] &= (uint64_t{1} << 8 * kept) - 1;
  }
  return key;
}

}  // namespace

Bpe::Cache::Cache() : slots_(kNumSlots) {}

Bpe::Bpe(Parts parts) : bytes_(parts.bytes), words_(std::move(parts.words)) {
  static_assert(std::endian::native == std::endian::little);
  table_.resize(std::bit_ceil(2 * parts.merges.size() + 2));
  shift_ = 64 - std::countr_zero(table_.size());
  for (size_t rank = 0; rank < parts.merges.size(); ++rank) {
    const auto& [left, right, whole] = parts.merges[rank];
    const uint64_t pair = pair_key(left, right);
    size_t at = mixed(pair) >> shift_;
    while (table_[at].pair != ~uint64_t{0} && table_[at].pair != pair)
      at = (at + 1) & (table_.size() - 1);
    table_[at] = {pair, {static_cast<uint32_t>(rank), whole}};
  }
}

Bpe::Merge Bpe::merge_of(int32_t left, int32_t right) const {
  const uint64_t pair = pair_key(left, right);
  for (size_t at = mixed(pair) >> shift_;; at = (at + 1) & (table_.size() - 1)) {
    if (table_[at].pair == pair) return table_[at].merge;
    if (table_[at].pair == ~uint64_t{0}) return {};
  }
}

void Bpe::encode(std::string_view word, size_t readable, Cache& cache,
                 std::vector<int32_t>& ids) const {
  if (word.size() > Cache::kMostBytes) return encode(word, ids);
  auto key = first_bytes(word.data(), word.size(), readable);
  key[3] |= uint64_t{word.size()} << 56;
  const uint64_t hash = mixed(mixed(mixed(mixed(key[0]) ^ key[1]) ^ key[2]) ^ key[3]);
  auto& slot = cache.slots_[hash >> (64 - std::countr_zero(Cache::kNumSlots))];
  if (slot.key == key) {
    ids.insert(ids.end(), slot.ids.begin(), slot.ids.begin() + slot.num_ids);
    return;
  }
  const size_t from = ids.size();
  encode(word, ids);
  const auto of_word = std::span(ids).subspan(from);
  if (of_word.size() > Cache::kMostIds) return;
  slot.key = key;
  slot.num_ids = static_cast<uint32_t>(of_word.size());
  std::ranges::copy(of_word, slot.ids.begin());
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (!words_.empty()) {
    if (const auto whole = words_.find(std::string(word)); whole != words_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  const size_t from = ids.size();
  for (const char c : word)
    if (const int32_t id = bytes_[static_cast<uint8_t>(c)]; id >= 0) ids.push_back(id);
  if (ids.size() - from <= kShort)
    merge_short(ids, from);
  else
    merge_long(ids, from);
}

void Bpe::merge_short(std::vector<int32_t>& ids, size_t from) const {
  int32_t* const id = ids.data() + from;
  size_t count = ids.size() - from;
  std::array<Merge, kShort> merges;  // of i and i + 1
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = merge_of(id[i], id[i + 1]);
  while (count > 1) {
    const auto best = std::min_element(merges.begin(), merges.begin() + (count - 1),
                                       [](Merge a, Merge b) { return a.rank < b.rank; });
    if (best->rank == kNoRank) break;
    const auto at = static_cast<size_t>(best - merges.begin());
    id[at] = best->whole;
    std::copy(id + at + 2, id + count, id + at + 1);
    std::copy(merges.begin() + at + 1, merges.begin() + (count - 1), merges.begin() + at);
    --count;
    if (at + 1 < count) merges[at] = merge_of(id[at], id[at + 1]);
    if (at > 0) merges[at - 1] = merge_of(id[at - 1], id[at]);
  }
  ids.resize(from + count);
}

void Bpe::merge_long(std::vector<int32_t>& ids, size_t from) const {
  struct Symbol {
    int32_t id;
    uint32_t before, behind;  // neighbours
    Merge merge;              // with the one behind
  };
  const auto count = static_cast<uint32_t>(ids.size() - from);
  std::vector<Symbol> symbols(count + 1);  // the last one ends the word
  // Rank above, place below: the leftmost of the best.
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> queue;
  const auto look = [&](uint32_t at) {
    auto& symbol = symbols[at];
    symbol.merge = symbol.behind < count ? merge_of(symbol.id, symbols[symbol.behind].id) : Merge();
    if (symbol.merge.rank != kNoRank) queue.push(uint64_t{symbol.merge.rank} << 32 | at);
  };
  for (uint32_t i = 0; i < count; ++i) symbols[i] = {ids[from + i], i - 1, i + 1, {}};
  for (uint32_t i = 0; i < count; ++i) look(i);
  while (!queue.empty()) {
    const auto at = static_cast<uint32_t>(queue.top());
    const auto rank = static_cast<uint32_t>(queue.top() >> 32);
    queue.pop();
    auto& symbol = symbols[at];
    if (symbol.merge.rank != rank) continue;  // one of the two has merged since
    auto& gone = symbols[symbol.behind];
    symbol.id = symbol.merge.whole;
    symbol.behind = gone.behind;
    symbols[gone.behind].before = at;
    gone.merge = {};
    look(at);
    if (at > 0) look(symbol.before);
  }
  ids.resize(from);
  for (uint32_t at = 0; at < count; at = symbols[at].behind) ids.push_back(symbols[at].id);
}

}  // namespace bmojo::data
