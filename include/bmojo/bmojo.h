#pragma once

// bmojo as a library: load a model, let it read tokens, draw the tokens that follow.
//
//   const bmojo::Model model("folder");          // as bmojo init, train or import write it
//   bmojo::State state = model.begin();
//   state.read(ids);                             // std::vector<std::int64_t>
//   const bmojo::Sampler sampler({.temperature = 0.8, .top_p = 0.95});
//   for (int i = 0; i < 100; ++i) state.read(sampler.draw(state));
//
// Results. Logits are the same bit for bit whether a text is read whole, in parts or token by
// token, alone or in a batch, with any number of threads, on any CPU with AVX2 and FMA. The same
// seed draws the same tokens everywhere.
//
// Ownership. Model, Tokenizer and Sampler never change. A copy of a Model or a Tokenizer shares
// what the first one loaded. A State is a value: a copy goes its own way. States keep their model
// alive, and nothing here refers to an object that you must keep. An object that was moved from can
// only be assigned to or destroyed.
//
// Threads. Any number of threads may use the same Model, Tokenizer or Sampler. A State or a
// TextStream is for one thread at a time. There are no settings of the process: the number of
// threads is chosen for each model when it is loaded.
//
// Errors. Every function that is not noexcept may throw InputError, RunError or std::bad_alloc. The
// message is one line: "subject: requirement, got value; remedy". What a function was to change is
// then as before, unless its comment says otherwise. After std::bad_alloc a State that was being
// read into can only be assigned to or destroyed. Files of weights are mapped: whoever changes them
// in place while a Model lives may end the process (SIGBUS).
//
// Needs C++20, and no other header than the standard library's. docs/library.md shows how to link.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

// v0 is the version of the binary interface. All names can be used without it: bmojo::Model.
namespace bmojo {
namespace [[gnu::visibility("default")]] v0 {

class Model;
class State;
class Tokenizer;
struct Access;  // the library's own way to what lies behind these

// The library's version, "0.1.0".
[[nodiscard]] std::string_view version() noexcept;

// Whatever the library itself reports.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// The caller's mistake: a folder without a model, a damaged file, a token outside the vocabulary, a
// number out of range, a state of another model.
struct InputError : Error {
  using Error::Error;
};
// What the caller could not know: a full disk, a file that cannot be read, logits that are not
// finite.
struct RunError : Error {
  using Error::Error;
};

// How weights are held in memory. Sums are in fp32 with either.
enum class WeightType { f32, bf16 };

struct ModelOptions {
  // None: bf16 where every matrix of the file is, else f32. bf16 halves the memory and rounds
  // weights that are not bf16 already.
  std::optional<WeightType> weights = {};
  // Other sizes of the memories, in tokens, than the folder's config has; no weight depends on
  // them. window 0 is without a limit.
  std::optional<std::int64_t> window = {}, fading_tokens = {}, eidetic_tokens = {};
  // Threads that a call may use, its own among them; 0: one a core. With several, calls from
  // different threads take turns in using them. A program that reads many states on many threads of
  // its own is faster with 1, where every call stays on its caller's thread.
  int threads = 0;
};

// Tokens for a state to read, in a batch.
struct Reading {
  State* state = nullptr;
  std::span<const std::int64_t> ids = {};
};

// Weights that have been loaded.
class Model {
 public:
  // A checkpoint's folder, or that of a training run, whose latest checkpoint is taken.
  explicit Model(const std::filesystem::path& folder, const ModelOptions& options = {});

  // A sequence of which nothing was read.
  [[nodiscard]] State begin(std::uint64_t seed = 0) const;
  // A state that State::save() or bmojo generate --state-out wrote. No token is read again. The
  // file must be whole and of this model: its weights, their type and the sizes of its memories.
  [[nodiscard]] State load(const std::filesystem::path& file) const;

  // State::read() for several states of this model at once, which is faster than one after the
  // other. No state may be named twice. Where an id is not of the vocabulary, nothing is read.
  void read(std::span<const Reading> batch) const;

  // The tokenizer in the model's folder, if there is one. A model of 257 ids without a tokenizer's
  // file is taken for one of bytes.
  [[nodiscard]] std::optional<Tokenizer> tokenizer() const;
  // The ids of a text that begins a document, as bmojo generate --prompt reads it: with the
  // beginning-of-sequence token in front where the tokenizer's kind has one. The text must be UTF-8
  // and not empty; a tokenizer of bytes takes any bytes.
  [[nodiscard]] std::vector<std::int64_t> encode_prompt(const Tokenizer& tokenizer,
                                                        std::string_view text) const;

  // Ids are from 0 to vocab_size() - 1.
  [[nodiscard]] std::int64_t vocab_size() const noexcept;
  // The tokens that begin and end a document, where the model has them.
  [[nodiscard]] std::optional<std::int64_t> bos_token() const noexcept;
  [[nodiscard]] std::optional<std::int64_t> eos_token() const noexcept;
  [[nodiscard]] std::int64_t window() const noexcept;  // 0: without a limit
  [[nodiscard]] std::int64_t fading_tokens() const noexcept;
  [[nodiscard]] std::int64_t eidetic_tokens() const noexcept;
  [[nodiscard]] WeightType weight_type() const noexcept;
  [[nodiscard]] int threads() const noexcept;

 private:
  friend struct Access;
  friend class State;
  struct Impl;
  explicit Model(std::shared_ptr<const Impl> impl) noexcept;
  std::shared_ptr<const Impl> impl_;
};

// A sequence that a model has read up to here. Its size does not depend on how long the text is,
// except where a window has no limit. To try several continuations of one prompt, read it once and
// copy the state.
class State {
 public:
  State(const State& other);
  State(State&& other) noexcept;
  State& operator=(const State& other);
  State& operator=(State&& other) noexcept;
  ~State();

  // Reads on. However long the text is, memory is needed for about 512 tokens at a time.
  void read(std::span<const std::int64_t> ids);
  void read(std::int64_t id);
  // The same, and the logits after every id: logits must have ids.size() · vocab_size() places, the
  // row after each id behind the other.
  void read(std::span<const std::int64_t> ids, std::span<float> logits);

  // What comes next: vocab_size() numbers, empty where nothing was read. Valid until the state
  // changes.
  [[nodiscard]] std::span<const float> logits() const noexcept;
  // How many tokens were read.
  [[nodiscard]] std::int64_t position() const noexcept;

  // The token at a position is drawn by the seed and the position alone, so a copy with the same
  // seed draws the same tokens.
  [[nodiscard]] std::uint64_t seed() const noexcept;
  void set_seed(std::uint64_t seed) noexcept;

  // Writes a file that Model::load() reads, whole or not at all. An old file of this name is
  // replaced.
  void save(const std::filesystem::path& file) const;

  [[nodiscard]] Model model() const noexcept;

 private:
  friend struct Access;
  struct Impl;
  explicit State(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

// How tokens are drawn: first the repetition penalty, then the temperature, then what is left by
// top_k, of that by top_p, of that by min_p. The likeliest token always stays.
struct SamplerOptions {
  double temperature = 1;         // 0 to 1e6; 0 takes the most likely token
  std::int64_t top_k = 0;         // the k most likely; 0: all
  double top_p = 1;               // 0 to 1: the fewest that hold this share of the mass
  double min_p = 0;               // 0 to 1: those at least so likely, where the likeliest has 1
  double repetition_penalty = 1;  // 0.01 to 100; above 1, the last 64 tokens are less likely
};

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options = {});

  // The id that comes next. The state, which must have read a token, does not change: read(id)
  // goes on with it. RunError where logits are not finite.
  [[nodiscard]] std::int64_t draw(const State& state) const;
  // The same among the ids that the tokenizer has: a model may have more.
  [[nodiscard]] std::int64_t draw(const State& state, const Tokenizer& tokenizer) const;
  [[nodiscard]] const SamplerOptions& options() const noexcept { return options_; }

 private:
  SamplerOptions options_;
};

// ln p(id) under the softmax of logits, such as State::logits().
[[nodiscard]] double log_probability(std::span<const float> logits, std::int64_t id);

// Text to ids and back.
class Tokenizer {
 public:
  // "bytes" (ids 0 to 255 are the bytes, 256 is the end of a document), or a file: a byte-level
  // tokenizer.json, a SentencePiece tokenizer.model, or GPT-2's vocab.json beside merges.txt.
  explicit Tokenizer(const std::string& name_or_file);

  // The ids of a text, of which neither beginning nor end is marked.
  [[nodiscard]] std::vector<std::int64_t> encode(std::string_view text) const;
  // Ids that mark something, such as the end of a document, give no text. Ids of a model without
  // training may give bytes that are no UTF-8; TextStream replaces those.
  [[nodiscard]] std::string decode(std::span<const std::int64_t> ids) const;

  [[nodiscard]] std::int64_t vocab_size() const noexcept;
  [[nodiscard]] std::int64_t end_of_document() const noexcept;
  [[nodiscard]] const std::string& kind() const noexcept;  // "bytes", "bpe" or "sentencepiece"

 private:
  friend struct Access;
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl) noexcept;
  std::shared_ptr<const Impl> impl_;
};

// Ids to text, one at a time. What it returns is whole UTF-8: a character is held back until its
// last byte has come, and bytes that belong to none become U+FFFD.
class TextStream {
 public:
  // `continues`: the text stands behind other text, such as a prompt. Some tokenizers drop a blank
  // that begins a text; it is then kept.
  explicit TextStream(Tokenizer tokenizer, bool continues = false);
  TextStream(TextStream&& other) noexcept;
  TextStream& operator=(TextStream&& other) noexcept;
  ~TextStream();

  // The text that is certain now; often nothing.
  [[nodiscard]] std::string push(std::int64_t id);
  // What was held back. The stream then begins anew.
  [[nodiscard]] std::string finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct GenerateOptions {
  std::int64_t max_tokens = 32;
  // Texts that end the writing, also where they begin or end inside of a token. They are not part
  // of the result. Only with a tokenizer.
  std::vector<std::string> stop = {};
  bool ignore_eos = false;        // go on after the model's eos_token()
  std::int64_t num_logprobs = 0;  // alternatives to tell of each token
  // The text is continued by another call: what is only half there at the end (a character, or a
  // text of `stop`) stays in the state, and in its file. State::read() drops it.
  bool goes_on = false;
  // Asked before each token; true ends the writing.
  std::function<bool()> is_stopped = {};
  // Receives text as soon as it is certain: whole characters that no text of `stop` can take back.
  // Only with a tokenizer.
  std::function<void(std::string_view)> on_text = {};
};

struct Alternative {
  std::int64_t id = 0;
  double logprob = 0;
};

enum class Finish {
  length,  // max_tokens were written, or is_stopped said so
  eos,     // the end-of-sequence token came; it is the last of the ids
  stop,    // a text of `stop` came
};

struct Generated {
  std::vector<std::int64_t> ids;
  std::vector<double> logprobs;                        // of each id, before any filter
  std::vector<std::vector<Alternative>> alternatives;  // of each id, the likeliest first
  std::string text;                                    // empty without a tokenizer
  Finish finish = Finish::length;
};

// Draws and reads until something ends it, as bmojo generate does. The state, which must have read
// a token, goes on: it has then read all that was written. With a tokenizer, ids that it does not
// have are never drawn. RunError where logits are not finite. What `is_stopped` and `on_text` throw
// passes through. After either, the state has read what was written until then.
Generated generate(State& state, const Sampler& sampler, const GenerateOptions& options = {});
Generated generate(State& state, const Sampler& sampler, const Tokenizer& tokenizer,
                   const GenerateOptions& options = {});

}  // namespace v0

#ifndef BMOJO_QUALIFIED_NAMES  // the library's own sources have other names in bmojo
using namespace v0;
#endif
}  // namespace bmojo
