#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "bmojo/infer/state.h"
#include "bmojo/kernels/packed_product.h"

// A sequence that has been read, as a file (docs/checkpoint.md, State files). Who loads it reads no
// token again and goes on with the same bits.

namespace bmojo::infer {

// Whose state it is: only this model, with these sizes of its memories, can go on with it.
struct Origin {
  std::string digest;  // of the weights: digest_of() in model/checkpoint.h
  kernels::WeightType type = kernels::WeightType::f32;
  model::Config config;
};

// Where writing stands.
struct Sampler {
  uint64_t seed = 0;
  uint64_t counter = 0;         // the number of the next draw: the position
  std::vector<int64_t> recent;  // the last tokens, for the repetition penalty
  std::string pending_utf8;     // bytes of a character that has not wholly come
  std::string pending_stop;     // text held back: a stop string may have begun

  // The one list of its fields, in the file's order.
  template <typename Self, typename Visit>
  static void visit(Self& sampler, Visit&& field) {
    field("sampler.seed", sampler.seed);
    field("sampler.counter", sampler.counter);
    field("sampler.recent", sampler.recent);
    field("sampler.pending_utf8", sampler.pending_utf8);
    field("sampler.pending_stop", sampler.pending_stop);
  }
};

struct Snapshot {
  Origin origin;
  State state;
  std::vector<float> logits;  // [V] behind the last token; empty: not kept
  Sampler sampler;
};

// Written whole or not at all.
void save_snapshot(const Snapshot& snapshot, const std::filesystem::path& path);

// Error where the file is damaged, cut short, of another version or, with `wanted`, of another
// model.
Snapshot load_snapshot(const std::filesystem::path& path, const Origin* wanted = nullptr);
// The same of a file's bytes; errors start with `subject`.
Snapshot read_snapshot(std::span<const std::byte> file, const std::string& subject,
                       const Origin* wanted = nullptr);

// Whether a file begins as these do.
bool is_snapshot(const std::filesystem::path& path);

}  // namespace bmojo::infer
