#include "bmojo/data/tokenize.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/json.h"
#include "bmojo/base/printable.h"
#include "bmojo/data/inputs.h"
#include "bmojo/data/shards.h"
#include "bmojo/data/tokenizer.h"

namespace bmojo::data {
namespace fs = std::filesystem;
namespace {

// Ids that follow one another in a document, and whether it ends with them.
struct Run {
  size_t num_ids = 0;
  int64_t num_bytes = 0;  // of text
  bool ends = true;
};

struct EncodedPart {
  std::vector<int32_t> ids;
  std::vector<Run> runs;
  int64_t num_input_bytes = 0;
  std::exception_ptr error;  // in place of all else
};

// The text of a line of JSONL.
std::string document_of(const InputPart& part, std::string_view line, const std::string& field) {
  base::Json json;
  try {
    json = base::parse_json(line, "");
  } catch (const base::Error&) {
    json = base::parse_json(line, part.where(line));  // throws the same, and says where
  }
  // Only a fault asks where(), which counts lines.
  if (!json.is_object())
    base::fail("{}: must be a JSON object, got {}", part.where(line), json.type_name());
  const auto text = json.find(field);
  if (text == json.end())
    base::fail("{}: field {} is missing; choose another with --field", part.where(line),
               base::in_quotes(field));
  if (!text->is_string())
    base::fail("{}: field {} must be a string, got {}", part.where(line), base::in_quotes(field),
               text->type_name());
  return std::move(text->get_ref<std::string&>());
}

EncodedPart encode_part(const InputPart& part, const Tokenizer& tokenizer,
                        const std::string& field) {
  EncodedPart encoded;
  encoded.num_input_bytes = std::ssize(part.text);
  if (!part.is_jsonl) {
    encoded.ids = part.begins ? tokenizer.encode(part.text) : tokenizer.encode_rest(part.text);
    encoded.runs.push_back({encoded.ids.size(), std::ssize(part.text), part.ends});
    return encoded;
  }
  for (auto rest = part.text; !rest.empty();) {
    const auto line = rest.substr(0, rest.find('\n'));
    const auto text = document_of(part, line, field);
    const auto ids = tokenizer.encode(text);
    encoded.ids.insert(encoded.ids.end(), ids.begin(), ids.end());
    encoded.runs.push_back({ids.size(), std::ssize(text), true});
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  }
  return encoded;
}

// Workers that encode parts, handed out in the order of the input. Only so many parts are in work
// or wait, so that memory does not grow with the input.
class Encoders {
 public:
  using Encode = std::function<EncodedPart(const InputPart&)>;

  Encoders(InputParts& parts, Encode encode, int64_t num_threads)
      : parts_(parts), encode_(std::move(encode)), most_ahead_(2 * num_threads + 2) {
    try {
      while (std::ssize(threads_) < num_threads) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;  // fewer do as well
    }
  }
  ~Encoders() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    room_.notify_all();
  }  // the threads join as they are destroyed, first of all members

  // The next part; nothing at the end. `wait` is called again and again while there is none yet.
  std::optional<EncodedPart> next(const std::function<void()>& wait) {
    std::unique_lock lock(mutex_);
    while (true) {
      if (const auto next = done_.find(num_handed_out_); next != done_.end()) {
        auto encoded = std::move(next->second);
        done_.erase(next);
        ++num_handed_out_;
        room_.notify_one();
        if (encoded.error) std::rethrow_exception(encoded.error);
        return encoded;
      }
      if (at_end_ && num_handed_out_ == num_taken_) return std::nullopt;
      ready_.wait_for(lock, std::chrono::milliseconds(50));
      lock.unlock();
      wait();
      lock.lock();
    }
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      room_.wait(lock,
                 [&] { return stopped_ || at_end_ || num_taken_ - num_handed_out_ < most_ahead_; });
      if (stopped_ || at_end_) return;
      EncodedPart encoded;
      const auto part = take(encoded.error);
      if (!part && !encoded.error) return;
      const int64_t number = num_taken_++;
      if (part) {
        lock.unlock();
        try {
          encoded = encode_(*part);
        } catch (...) {
          encoded.error = std::current_exception();
        }
        lock.lock();
      }
      done_.emplace(number, std::move(encoded));
      ready_.notify_one();
    }
  }

  // Nothing is taken behind the end or a failure.
  std::optional<InputPart> take(std::exception_ptr& error) {
    std::optional<InputPart> part;
    try {
      part = parts_.next();
    } catch (...) {
      error = std::current_exception();
    }
    if (part) return part;
    at_end_ = true;
    room_.notify_all();
    ready_.notify_one();
    return std::nullopt;
  }

  InputParts& parts_;
  const Encode encode_;
  const int64_t most_ahead_;
  std::mutex mutex_;  // of everything below, and of parts_
  std::condition_variable ready_, room_;
  std::map<int64_t, EncodedPart> done_;  // by number
  int64_t num_taken_ = 0, num_handed_out_ = 0;
  bool at_end_ = false, stopped_ = false;
  std::vector<std::jthread> threads_;
};

// The shards of a folder, one after the other.
class ShardFolder {
 public:
  ShardFolder(fs::path folder, const Tokenizer& tokenizer, int64_t shard_tokens)
      : folder_(std::move(folder)), tokenizer_(tokenizer), shard_tokens_(shard_tokens) {
    summary_.tokenizer = tokenizer.name();
    summary_.vocab_size = tokenizer.vocab_size();
  }

  void write(const EncodedPart& part) {
    std::span<const int32_t> ids(part.ids);
    for (const auto& run : part.runs) {
      if (run.num_ids > 0) {
        if (!shard_) open();
        shard_->write(ids.first(run.num_ids), run.num_bytes);
        ids = ids.subspan(run.num_ids);
        has_ids_ = true;
      }
      if (run.ends) end_document();
    }
  }

  // Error where there was no document.
  TokenizeSummary finish() {
    if (shard_) close();
    base::require(summary_.num_documents > 0, "inputs: must hold text, got {} empty documents",
                  summary_.num_empty_documents);
    if (!tokenizer_.model().empty()) {
      base::AtomicFile file(folder_ / tokenizer_file_name(tokenizer_.name()));
      file.write(tokenizer_.model());
      file.commit();
    }
    return summary_;
  }

 private:
  void open() {
    const auto name = fmt::format("shard-{:05}{}", summary_.num_shards, kShardExtension);
    shard_ = std::make_unique<ShardWriter>(folder_ / name, tokenizer_);
  }
  void close() {
    const auto info = shard_->commit();
    shard_.reset();
    ++summary_.num_shards;
    summary_.num_documents += info.num_documents;
    summary_.num_tokens += info.num_tokens;
    summary_.num_bytes += info.num_bytes;
  }
  void end_document() {
    if (!std::exchange(has_ids_, false)) {
      ++summary_.num_empty_documents;
      return;
    }
    shard_->end_document();
    if (shard_->num_tokens() >= shard_tokens_) close();
  }

  fs::path folder_;
  const Tokenizer& tokenizer_;
  int64_t shard_tokens_;
  std::unique_ptr<ShardWriter> shard_;  // the open one
  bool has_ids_ = false;                // the open document
  TokenizeSummary summary_;
};

}  // namespace

TokenizeSummary tokenize(const TokenizeOptions& options,
                         const std::function<void(int64_t, int64_t)>& progress) {
  base::require(options.shard_tokens >= 1 && options.num_threads >= 1,
                "tokenize: shard_tokens and num_threads must be at least 1, got {} and {}",
                options.shard_tokens, options.num_threads);
  const auto tokenizer = load_tokenizer(options.tokenizer);
  const auto inputs = list_inputs(options.inputs);
  TokenizeSummary summary;
  if (!options.out.empty())
    base::create_folders(base::absolute_path(options.out).parent_path(), "out");
  base::write_folder(options.out, [&](const fs::path& folder) {
    InputParts parts(inputs.files, *tokenizer);
    ShardFolder shards(folder, *tokenizer, options.shard_tokens);
    Encoders encoders(
        parts, [&](const InputPart& part) { return encode_part(part, *tokenizer, options.field); },
        options.num_threads);
    int64_t done = 0;
    const auto report = [&] { progress(done, inputs.num_bytes); };
    while (const auto part = encoders.next(report)) {
      shards.write(*part);
      done += part->num_input_bytes;
      report();
    }
    summary = shards.finish();
    report();
  });
  summary.num_other_files = inputs.num_other_files;
  return summary;
}

}  // namespace bmojo::data
