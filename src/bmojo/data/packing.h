#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "bmojo/data/shards.h"

namespace bmojo::data {

// Tokens [begin, end) of a data set.
struct TokenRange {
  int64_t begin = 0, end = 0;
};

// A run of tokens with what is due after each: the next token of the same document, or kNotScored.
// Document ids tell where one ends: neighbours of different documents have different ids.
struct Reading {
  std::span<int64_t> ids, targets, documents;
};

// What the sequences of a batch read, for ever. Documents are put in an order drawn anew for each
// epoch and laid end to end; everything is a function of the seed, so a sequence can go on
// anywhere.
//
// With a context of C tokens the epoch is cut into pieces of C, from an offset of its own, and the
// pieces are drawn in another order again: sequence r of R reads pieces r, R + r, 2 R + r, … of all
// epochs. Each piece counts as documents of its own. Without (C = 0), sequence r starts at the r-th
// part of the first epoch and reads on through all epochs: an endless stream.
class Packing {
 public:
  Packing(const TokenData& data, TokenRange tokens, int64_t context, int64_t num_sequences,
          uint64_t seed);

  // Tokens [from, from + ids.size()) of everything the sequence reads. Pieces are not left in
  // between: with a context, from and the length divide it.
  void read(int64_t sequence, int64_t from, const Reading& out) const;

 private:
  struct Epoch {
    std::vector<int64_t> order;   // of the documents
    std::vector<int64_t> starts;  // where each begins in that order; the end is last
    std::vector<int64_t> pieces;  // order of the pieces
    int64_t offset = 0;           // of the first piece
  };
  const Epoch& epoch(int64_t number) const;
  void read_epoch(int64_t number, int64_t from, int64_t first_id, const Reading& out) const;

  const TokenData& data_;
  std::vector<TokenRange> documents_;
  int64_t num_tokens_, context_, num_sequences_, num_pieces_ = 0;
  uint64_t seed_;
  mutable std::map<int64_t, Epoch> epochs_;  // the last two that were asked for
};

// Tokens [from, …) in file order, the document's number as id. `bounds` cuts documents off.
void read_in_order(const TokenData& data, TokenRange bounds, int64_t from, const Reading& out);

}  // namespace bmojo::data
