#include "bmojo/data/added_tokens.h"

namespace bmojo::data {
namespace {

size_t pair_of(uint8_t first, uint8_t second) { return size_t{first} << 8 | second; }

}  // namespace

uint32_t AddedTokens::child(uint32_t node, uint8_t byte) const {
  if (node == 0) return first_[byte];
  for (const auto& [label, next] : nodes_[node].next)
    if (label == byte) return next;
  return 0;
}

void AddedTokens::add(std::string_view text, int32_t id) {
  if (text.empty()) return;
  const auto first = static_cast<uint8_t>(text[0]);
  uint32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
      if (node == 0)
        first_[byte] = next;
      else
        nodes_[node].next.emplace_back(byte, next);
    }
    node = next;
  }
  if (nodes_[node].id < 0) nodes_[node].id = id;
  for (size_t second = 0; second < 256; ++second)
    if (text.size() == 1 || static_cast<uint8_t>(text[1]) == second)
      starts_.set(pair_of(first, static_cast<uint8_t>(second)));
}

AddedTokens::Match AddedTokens::longest_at(std::string_view text, size_t at) const {
  Match best{text.size(), text.size(), -1};
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    node = child(node, static_cast<uint8_t>(text[i]));
    if (node == 0) break;
    if (nodes_[node].id >= 0) best = {at, i + 1, nodes_[node].id};
  }
  return best;
}

AddedTokens::Match AddedTokens::find(std::string_view text, size_t from) const {
  const Match none{text.size(), text.size(), -1};
  if (nodes_.size() == 1) return none;
  for (size_t at = from; at < text.size(); ++at) {
    const auto first = static_cast<uint8_t>(text[at]);
    if (first_[first] == 0) continue;
    const bool is_last = at + 1 == text.size();
    if (!is_last && !starts_[pair_of(first, static_cast<uint8_t>(text[at + 1]))]) continue;
    if (const auto match = longest_at(text, at); match.id >= 0) return match;
  }
  return none;
}

}  // namespace bmojo::data
