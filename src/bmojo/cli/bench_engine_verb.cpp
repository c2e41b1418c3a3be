#include <fmt/format.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <vector>

#include "bmojo/base/error.h"
#include "bmojo/base/memory.h"
#include "bmojo/base/progress.h"
#include "bmojo/base/random.h"
#include "bmojo/cli/engine.h"
#include "bmojo/cli/verbs.h"
#include "bmojo/model/init.h"

// `bench` of `bmojo`: how fast the native engine reads and writes. With --train it runs in
// bmojo-torch.

namespace bmojo::cli {
namespace {
namespace fs = std::filesystem;

struct Options {
  Common common;
  EngineChoice engine;
  model::ModelChoice choice;
  bool train = false;
  std::string depths = "0";
  int64_t prompt = 512, tokens = 64, batch = 1, repeat = 1;
};

// Fresh weights of a preset, in a folder that is gone with this.
class FreshModel {
 public:
  FreshModel(const model::Config& config, uint64_t seed) {
    auto name = (fs::temp_directory_path() / "bmojo-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw base::RunError("bench: no temporary folder");
    parent_ = name;
    try {
      model::write_fresh_checkpoint(config, seed, folder(), [](int64_t) { check_interrupted(); });
    } catch (...) {
      remove();
      throw;
    }
  }
  ~FreshModel() { remove(); }
  FreshModel(const FreshModel&) = delete;
  FreshModel& operator=(const FreshModel&) = delete;
  fs::path folder() const { return parent_ / "model"; }

 private:
  void remove() {
    std::error_code ignored;
    fs::remove_all(parent_, ignored);
  }

  fs::path parent_;
};

class Bench {
 public:
  Bench(const eval::LanguageModel& model, const Options& options)
      : model_(model), options_(options), random_({static_cast<uint64_t>(options.common.seed)}) {}

  using Sequences = std::vector<std::unique_ptr<eval::Memory>>;

  // Reading after `depth` tokens, then writing after these too.
  Sequences at_depth(int64_t depth) {
    Sequences sequences;
    for (int64_t b = 0; b < options_.batch; ++b) sequences.push_back(model_.begin());
    read(sequences, depth);
    print("prefill", depth, options_.prompt, read(sequences, options_.prompt));
    write(sequences);
    return sequences;
  }

  void write(const Sequences& sequences) {
    const auto depth = sequences.front()->position();
    step(sequences);  // the first one finds memory and caches cold
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < options_.tokens; ++i) step(sequences);
    print("decode", depth, options_.tokens, since(start));
  }

 private:
  static double since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  // `count` tokens of every sequence; the seconds it took, with one row of logits for each.
  double read(const Sequences& sequences, int64_t count) {
    const auto D = static_cast<size_t>(model_.config().hidden_size);
    const auto start = std::chrono::steady_clock::now();
    for (int64_t done = 0; done < count; done += kPart) {
      const int64_t n = std::min(kPart, count - done);
      std::vector<int64_t> ids(static_cast<size_t>(n));
      for (auto& id : ids)
        id = static_cast<int64_t>(random_.below(static_cast<uint64_t>(model_.config().vocab_size)));
      std::vector<eval::Reading> readings;
      for (const auto& memory : sequences) readings.push_back({memory.get(), ids});
      hidden_.resize(ids.size() * D * sequences.size());
      model_.forward(readings, hidden_.data());
      check_interrupted();
    }
    if (count > 0) predict(sequences.size());
    return since(start);
  }

  void step(const Sequences& sequences) { read(sequences, 1); }

  void predict(size_t n) {
    logits_.resize(n * static_cast<size_t>(model_.config().vocab_size));
    model_.logits(hidden_.data(), static_cast<int64_t>(n), logits_.data());
  }

  void print(const char* phase, int64_t depth, int64_t count, double seconds) const {
    const auto speed = static_cast<double>(count * options_.batch) / seconds;
    const auto peak = base::process_memory("VmHWM");
    if (options_.common.json)
      return print_json({{"phase", phase},
                         {"dtype", model_.weight_type()},
                         {"batch", options_.batch},
                         {"depth", depth},
                         {"tokens", count},
                         {"tokens_per_second", speed},
                         {"peak_rss_bytes", peak}});
    fmt::print("{:<8} {:>9} tokens deep, batch {:>2}: {:>9.1f} tokens a second, {} of memory\n",
               phase, base::grouped(depth), options_.batch, speed,
               base::si(static_cast<double>(peak), "B"));
  }

  static constexpr int64_t kPart = 512;
  const eval::LanguageModel& model_;
  const Options& options_;
  base::Random random_;
  std::vector<float> hidden_, logits_;
};

void run_bench(const Options& options) {
  defer_interrupts();
  base::require(!options.train, "--train: takes no value");
  base::require(options.engine.model.empty() || !model::is_given(options.choice) ||
                    (options.choice.preset.empty() && options.choice.config.empty()),
                "bench: --model cannot be given with --preset or --config");
  std::unique_ptr<FreshModel> fresh;
  auto engine = options.engine;
  engine.set = options.choice.set;
  if (engine.model.empty()) {
    fresh = std::make_unique<FreshModel>(model::resolve(options.choice),
                                         static_cast<uint64_t>(options.common.seed));
    engine.model = fresh->folder().string();
    engine.set.clear();
  }
  std::vector<int64_t> depths;
  for (const auto depth : parse_ids(options.depths)) {
    base::require(depth >= 0, "--depth: must be 0 or more, got {}", depth);
    depths.push_back(depth);
  }
  // Turns at several depths keep the sequences of all of them.
  engine.sequences = options.batch * (options.repeat > 1 ? std::ssize(depths) : 1);
  const auto model = open_model(engine, options.common.threads);
  Bench bench(*model, options);
  std::vector<Bench::Sequences> read;
  for (const auto depth : depths) {
    auto sequences = bench.at_depth(depth);
    if (options.repeat > 1) read.push_back(std::move(sequences));
  }
  for (int64_t i = 1; i < options.repeat; ++i)
    for (const auto& sequences : read) bench.write(sequences);
}

}  // namespace

void add_bench_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("bench", "Speed of reading and writing, or of a training step");
  verb->add_option("--model", options->engine.model, "Checkpoint folder")->option_text("DIR");
  add_model_choice(*verb, options->choice);
  verb->add_option("--dtype", options->engine.dtype, "f32 or bf16 weights")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->option_text("TYPE");
  add_number(*verb, {"--prompt", "Tokens to read", 1, int64_t{1} << 30, "N [512]"},
             options->prompt);
  add_number(*verb, {"--tokens", "Tokens to write", 1, int64_t{1} << 30, "N [64]"},
             options->tokens);
  verb->add_option("--depth", options->depths, "Tokens that were read before, several by commas")
      ->option_text("N,... [0]");
  add_number(*verb,
             {"--repeat", "Times to write; after the first, all depths by turns", 1,
              int64_t{1} << 30, "N [1]"},
             options->repeat);
  add_number(*verb, {"--batch", "Sequences at once", 1, int64_t{1} << 20, "N [1]"}, options->batch);
  verb->add_flag("--train", options->train, "The training step; see bench --train --help");
  add_common(*verb, options->common);
  verb->callback([options] { run_verb([&] { run_bench(*options); }); });
}

}  // namespace bmojo::cli
