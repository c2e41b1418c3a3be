#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bmojo/base/function_ref.h"
#include "bmojo/eval/observer.h"
#include "bmojo/model/config.h"

namespace bmojo::eval {

// What a model keeps of one sequence that it is reading.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::unique_ptr<Memory> copy() const = 0;
  virtual int64_t position() const = 0;  // tokens read
};

// Tokens that a sequence goes on with.
struct Reading {
  Memory* memory = nullptr;
  std::span<const int64_t> ids;
  // A document's id for each: where it changes, the memory is emptied first. They are given from a
  // sequence's first token on, or never (empty).
  std::span<const int64_t> documents = {};
  // With eidetic_rule=oracle: the positions to keep, the most wanted first.
  const std::vector<int64_t>* wanted = nullptr;
};

// A sequence that was read up to here, what comes next in it, and what writing it needs to go on.
struct Continuation {
  std::unique_ptr<Memory> memory;
  std::vector<float> logits;    // [V] after the last token
  std::vector<int64_t> recent;  // last tokens, for the repetition penalty
  uint64_t seed = 0;
  std::string pending_utf8;  // bytes of a character that has not wholly come
  std::string pending_stop;  // text held back: a stop text may have begun

  Continuation copy() const {
    return {memory->copy(), logits, recent, seed, pending_utf8, pending_stop};
  }
};

// A model that reads and predicts. Scoring, sampling and evaluation are written over this, once for
// every engine.
class LanguageModel {
 public:
  virtual ~LanguageModel() = default;

  virtual const model::Config& config() const = 0;
  virtual std::string weight_type() const { return "f32"; }
  virtual std::unique_ptr<Memory> begin() const = 0;
  // Reads on in every sequence; hidden [Σ tokens, D], sequence by sequence.
  void forward(std::span<const Reading> readings, float* hidden,
               Observer* observer = nullptr) const {
    for (const auto& reading : readings) num_read_ += std::ssize(reading.ids);
    read_on(readings, hidden, observer);
  }
  // Tokens that were read so far, in all sequences.
  int64_t num_read() const { return num_read_; }
  // What is due next after each token: hidden [n, D] -> logits [n, V].
  virtual void logits(const float* hidden, int64_t n, float* out) const = 0;
  // task(0) … task(n - 1) on the engine's threads.
  virtual void parallel(int64_t n, const base::FunctionRef<void(int64_t)>& task) const = 0;
  // A continuation as a file, and back. Error where the file is damaged or of another model, or
  // where an engine has no such files.
  virtual void save(const Continuation& from, const std::filesystem::path& path) const;
  virtual Continuation load(const std::filesystem::path& path) const;

 private:
  virtual void read_on(std::span<const Reading> readings, float* hidden,
                       Observer* observer) const = 0;

  mutable std::atomic<int64_t> num_read_ = 0;
};

}  // namespace bmojo::eval
