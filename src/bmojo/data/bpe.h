#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace bmojo::data {

// Two neighbours that become one.
struct BpeMerge {
  int32_t left, right, whole;
};

// Words to ids by merging neighbours: of all pairs that may merge the one that comes first in
// `merges`, of equal ones the leftmost, until none is left.
class Bpe {
 public:
  struct Parts {
    std::array<int32_t, 256> bytes;  // id of each byte; -1: none, and the byte is left out
    std::vector<BpeMerge> merges;
    std::unordered_map<std::string, int32_t> words = {};  // ids that are taken without any merge
  };

  // Words seen before, a slot for each hash: most of a text is made of few words. Not shared by
  // threads.
  class Cache {
   public:
    Cache();

   private:
    friend class Bpe;
    static constexpr size_t kMostBytes = 31, kMostIds = 7, kNumSlots = size_t{1} << 15;
    struct alignas(64) Slot {
      std::array<uint64_t, 4> key{};  // the word's bytes, then zeros; the last byte is its length
      uint32_t num_ids = 0;
      std::array<int32_t, kMostIds> ids{};
    };
    std::vector<Slot> slots_;
  };

  explicit Bpe(Parts parts);

  // `readable` ≥ word.size(): bytes that may be read from the word's beginning on.
  void encode(std::string_view word, size_t readable, Cache& cache,
              std::vector<int32_t>& ids) const;
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  static constexpr uint32_t kNoRank = 0xffffffff;
  struct Merge {
    uint32_t rank = kNoRank;
    int32_t whole = -1;
  };
  struct Entry {
    uint64_t pair = ~uint64_t{0};  // left, right
    Merge merge;
  };

  Merge merge_of(int32_t left, int32_t right) const;
  void merge_short(std::vector<int32_t>& ids, size_t from) const;
  void merge_long(std::vector<int32_t>& ids, size_t from) const;

  std::array<int32_t, 256> bytes_;
  std::unordered_map<std::string, int32_t> words_;
  std::vector<Entry> table_;  // by hash of the pair, the next free one where it is taken
  int shift_ = 0;             // 64 - log2 of the table's size
};

}  // namespace bmojo::data
