#pragma once

#include <cstdint>
#include <vector>

#include "bmojo/data/packing.h"
#include "bmojo/data/task.h"

// Shapes: B sequences, L tokens each.

namespace bmojo::data {

// Sequences of tokens with what is due at each; kNotScored where nothing is due.
struct Batch {
  int64_t num_sequences = 0, length = 0;
  std::vector<int64_t> ids = {}, targets = {};  // [B, L]
  std::vector<int64_t> documents = {};          // [B, L]; empty: each sequence is one document
  std::vector<int64_t> sources = {};  // [B, L] of a task: where what is due stands, or kNoSource
  // Of a task: the positions that answers need in each whole sequence, first what is due, then the
  // token before it, which it is known by.
  std::vector<std::vector<int64_t>> wanted = {};
  int64_t num_scored = 0;
};

// One to be filled, sequence by sequence.
Batch empty_batch(int64_t sequences, int64_t length, bool with_documents);
Reading sequence_of(Batch& batch, int64_t sequence);
void count_scored(Batch& batch);

// Tokens [from, from + count) of every sequence.
Batch columns(const Batch& batch, int64_t from, int64_t count);

// Sequences [first, first + count) of a task.
Batch draw(const Task& task, uint64_t seed, Split split, int64_t first, int64_t count);

}  // namespace bmojo::data
