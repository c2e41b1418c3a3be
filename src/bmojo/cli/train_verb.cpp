#include <stdlib.h>
#include <torch/torch.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "bmojo/base/digest.h"
#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/memory.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/torch_verbs.h"
#include "bmojo/cli/train_flags.h"
#include "bmojo/cli/train_plan.h"
#include "bmojo/train/launch.h"
#include "bmojo/train/trainer.h"

namespace bmojo {
namespace {
namespace fs = std::filesystem;
using train::Plan;
using train::Recipe;

struct Options {
  std::string run, out;
  bool resume = false, dry_run = false, quiet = false, json = false;
};

// What a run that goes on was started with.
struct Started {
  Recipe recipe;
  train::Record record;
};

Started load_started(const fs::path& out) {
  train::check_started(out);
  return {load_recipe(out / kRunFile), train::load_record(out)};
}

bool is_set(const Recipe& recipe, std::string_view field) {
  return std::ranges::any_of(recipe.set, [&](const std::string& text) {
    return text.starts_with(field) && text.substr(field.size()).starts_with('=');
  });
}

// The vocabulary is that of what is read, unless it was chosen: by --set, by a config of one's own
// for text, or with the weights. Then it must hold what is read.
void set_vocabulary(Job& job) {
  auto& config = job.config;
  const auto& recipe = job.recipe;
  const int64_t needed = job.task ? job.task->vocab_size : job.data->vocab_size();
  const bool follows = recipe.init_from.empty() && (job.task || !recipe.preset.empty());
  if (follows && !is_set(recipe, "vocab_size")) config.vocab_size = needed;
  if (job.task)
    require(config.vocab_size == needed, "vocab_size: must be the task's = {}, got {}", needed,
            config.vocab_size);
  require(config.vocab_size >= needed, "vocab_size: must be at least the data's = {}, got {}",
          needed, config.vocab_size);
  if (recipe.preset.empty()) return;
  if (!is_set(recipe, "bos_token_id")) config.bos_token_id = -1;
  if (!is_set(recipe, "eos_token_id"))
    config.eos_token_id = job.data ? job.data->end_of_document() : -1;
}

Config model_config(const Recipe& recipe) {
  const bool from = !recipe.init_from.empty();
  require(!from || (recipe.preset.empty() && recipe.config.empty()),
          "--init-from: cannot be given with --preset or --config");
  if (!from) return resolve(ModelChoice{recipe.preset, recipe.config, recipe.set});
  auto config = load_config(checkpoint_folder(recipe.init_from));
  apply_memory_settings(config, recipe.set);
  return config;
}

std::string weights_digest(const Recipe& recipe) {
  return digest_of(TensorFolder(checkpoint_folder(recipe.init_from)));
}

// What the recipe names must hold the config and the weights that the run was started with.
void check_model(const Job& job, const Started& started, const std::string& out) {
  Job again = job;
  again.config = model_config(job.recipe);
  set_vocabulary(again);
  train::require_same(to_json(started.record.config), to_json(again.config), out);
  if (!job.recipe.init_from.empty())
    train::require_same(started.record.source, {{"weights", weights_digest(job.recipe)}}, out);
}

// Where the model came from is looked at again if it is named anew. A config's file may be gone,
// but where it is there it must say the same. Weights may be newer, once there is a checkpoint.
bool is_model_checked(const Recipe& recipe, const Recipe& started) {
  return recipe.config != started.config || recipe.init_from != started.init_from ||
         (!recipe.config.empty() && fs::exists(recipe.config));
}

// Reads what the recipe names and fills in what it leaves open.
Job prepare(Recipe recipe, const std::optional<Started>& started, const std::string& out,
            int64_t threads) {
  Job job;
  require(recipe.task.empty() != recipe.data.empty(), "--task or --data: one is needed, got {}",
          recipe.task.empty() ? "neither" : "both");
  if (!recipe.task.empty()) {
    job.task = parse_task(recipe.task);
    require(recipe.val_data.empty() && recipe.val_fraction == 0,
            "--task: cannot be given with --val-data or --val-fraction; it validates on fresh "
            "sequences");
  } else {
    job.data = train::open_data(recipe.data);
  }
  if (recipe.threads == 0) recipe.threads = std::max<int64_t>(threads, 1);
  job.recipe = std::move(recipe);
  if (started) {
    if (is_model_checked(job.recipe, started->recipe)) check_model(job, *started, out);
    job.config = started->record.config;
  } else {
    job.config = model_config(job.recipe);
    set_vocabulary(job);
    if (job.data && !job.recipe.init_from.empty())
      require_tokenizer_of(checkpoint_folder(job.recipe.init_from), *job.data);
  }
  validate(job.config);
  train::check_trainable(job.config);
  job.plan = train::resolve(job.recipe, job.config, job.task ? job.task->length : 0);
  if (started) train::require_same(fixed_fields(started->recipe), fixed_fields(job.recipe), out);
  return job;
}

void say(const std::string& text) { print_stderr(text + '\n'); }

// The files that go with given weights. Of those beside text only what is known to be its
// tokenizer's: the file of its kind, which prepare() has compared.
TokenizerFiles given_tokenizer(const Job& job) {
  if (job.recipe.init_from.empty()) return {};
  const auto folder = checkpoint_folder(job.recipe.init_from);
  if (job.data && tokenizer_digests(folder, job.data->tokenizer_name()).empty()) return {};
  return read_tokenizer_files(folder);
}

// Refuses what would end the run before its first step, and prints the plan. Writes nothing.
void dry_run(const Job& job, const Options& options, const std::optional<Started>& started) {
  const train::Source source(job.recipe, job.plan, job.task, job.data);
  const bool is_given = !job.recipe.init_from.empty();
  std::optional<int64_t> step;
  if (started) {
    train::require_same(started->record.source, source.identity(), options.out);
    step = train::find_checkpoint(options.out, say);
    if (step)
      train::require_same_run(options.out, *step, job.recipe, source, job.config);
    else if (is_given)
      check_model(job, *started, options.out);
  } else {
    if (is_given) const Checkpoint whole(checkpoint_folder(job.recipe.init_from));
    given_tokenizer(job);
    if (!options.out.empty()) train::check_new(options.out);
  }
  use_threads(job.recipe.threads);
  print_plan(job, estimate(job, source), step.value_or(0), options.json);
}

nn::Parameters initial_parameters(const Job& job) {
  if (job.recipe.init_from.empty())
    return nn::fresh_parameters(job.config, static_cast<uint64_t>(job.recipe.seed));
  auto parameters = nn::load_parameters(Checkpoint(checkpoint_folder(job.recipe.init_from)));
  for (auto& [name, tensor] : parameters) tensor = tensor.clone();  // not the mapped file's pages
  return parameters;
}

// The heap is never given back (see main), so it is as large as it has been. Files that were mapped
// are not counted: their pages are the system's to drop.
int64_t peak_memory() { return process_memory("RssAnon"); }

void print_result(const train::Trainer& trainer, const Options& options) {
  const auto best = trainer.best_loss();
  const auto& overhead = trainer.overhead();
  if (options.json)
    return print_json({{"step", trainer.num_steps_done()},
                       {"loss", trainer.last_loss()},
                       {"best_val_loss", best ? Json(*best) : Json()},
                       {"seconds", trainer.seconds_running()},
                       {"read_seconds", overhead.reading},
                       {"log_seconds", overhead.logging},
                       {"save_seconds", overhead.saving},
                       {"peak_memory_bytes", peak_memory()},
                       {"out", options.out}});
  fmt::print("{}: step {}, loss {}{}\n", options.out, trainer.num_steps_done(),
             eval::loss_text(trainer.last_loss()),
             best ? fmt::format(", best validation {:.4f}", *best) : "");
  if (!options.quiet)
    say(fmt::format("{} in this call, {:.1f} % of it reading, logging and saving; memory {}",
                    clock_text(trainer.seconds_running()),
                    100 * overhead.total() / trainer.seconds_running(),
                    si(static_cast<double>(peak_memory()), "B")));
}

std::string digest_of(const nn::Model& model) {
  Digest digest;
  for (const auto& [name, tensor] : model.parameters()) {
    const auto dense = tensor.detach().contiguous();
    digest.update(std::as_bytes(std::span(dense.data_ptr<float>(), dense.numel())));
  }
  return digest.text();
}

// Makes a new run's folder and locks it before anything is written: of two that start there at once
// one is refused.
void start_run(const Job& job, const train::Source& source, const fs::path& out,
               std::optional<LockedFile>& lock) {
  train::check_new(out);
  create_folders(out, "--out");
  lock.emplace(out / train::kLockFile, "--out");
  auto identity = source.identity();
  if (!job.recipe.init_from.empty()) identity["weights"] = weights_digest(job.recipe);
  train::create(out, {job.config, identity}, to_toml(job.recipe));
}

// Nothing is written before everything the recipe names has been read.
void run_worker(const Job& job, const Options& options, const std::optional<Started>& started,
                const train::Workers& workers) {
  const fs::path out = options.out;
  use_threads(job.recipe.threads);
  train::Source source(job.recipe, job.plan, job.task, job.data);
  const bool shows = workers.first() && !options.quiet;
  if (!started && workers.first()) train::check_new(out);
  const auto expected = shows ? estimate(job, source) : Estimate();
  nn::Parameters parameters;
  TokenizerFiles tokenizer;
  if (!started) {
    parameters = initial_parameters(job);
    tokenizer = given_tokenizer(job);
  }
  // Each has read its own files, and on several machines its own command line.
  workers.require_same("the recipe", fixed_fields(job.recipe).dump());
  workers.require_same("the data", source.identity().dump());
  workers.require_same("the config", to_json(job.config).dump());
  if (started) train::require_same(started->record.source, source.identity(), options.out);
  std::optional<LockedFile> lock;
  int64_t step = -1;
  if (workers.first()) {
    if (started)
      lock.emplace(out / train::kLockFile, "--out");
    else
      start_run(job, source, out, lock);
    step = train::find_checkpoint(out, say).value_or(-1);
  }
  step = static_cast<int64_t>(workers.max(static_cast<double>(step)));
  if (step >= 0) {
    parameters = nn::empty_parameters(job.config, at::kFloat);
  } else if (started) {
    if (!job.recipe.init_from.empty()) check_model(job, *started, options.out);
    parameters = initial_parameters(job);
    tokenizer = given_tokenizer(job);
  }
  train::Trainer trainer(job.recipe, job.plan, nn::Model(job.config, std::move(parameters)),
                         std::move(source), workers,
                         {.out = out,
                          .stop_asked = [] { return interrupted_by() != 0; },
                          .quiet = options.quiet,
                          .tokenizer = std::move(tokenizer)});
  if (step >= 0)
    trainer.resume(step);
  else if (workers.first())
    train::cut_metrics(out, 0);
  if (workers.count() > 1) workers.require_same("the weights", digest_of(trainer.model()));
  if (workers.first()) train::remove_unfinished(out);
  if (shows)
    for (const auto& line : summary(job, expected, trainer.num_steps_done())) say(line);
  if (started && shows)
    say(fmt::format("{}: {} {}", options.out,
                    step < 0 ? "no checkpoint yet, starts at step" : "goes on from step",
                    trainer.num_steps_done()));
  defer_interrupts();
  const auto ending = trainer.run();
  if (ending == train::Ending::interrupted)
    throw Interrupted{SIGINT, fmt::format("interrupted at step {}, saved; go on with --resume",
                                          trainer.num_steps_done())};
  if (workers.first()) print_result(trainer, options);
}

// The words this program was started with.
std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

void run_train(const Options& options, const CLI::App& given) {
  end_with_130();
  // MKL repeats its sums to the bit only in this mode; it is read at the first product.
  setenv("MKL_CBWR", "AUTO", /*overwrite=*/0);
  require(options.dry_run || !options.out.empty(), "--out: must name the run's folder, got none");
  std::optional<Started> started;
  if (options.resume) started = load_started(options.out);
  auto recipe =
      merged_recipe(given, options.run, started ? fs::path(options.out) / kRunFile : fs::path());
  const auto place = train::place_from_environment();
  if (place) {
    require(given.get_option("--workers")->count() == 0 || recipe.workers == place->count,
            "--workers: must be as many as were started = {}, got {}; leave it out", place->count,
            recipe.workers);
    recipe.workers = place->count;
  }
  // What was said first: with another task or number of workers the rest might not fit together.
  if (started) train::require_same(said_fields(started->recipe), said_fields(recipe), options.out);
  // A worker that was started as one already has its share of the threads.
  const int64_t share = place ? 1 : std::max<int64_t>(recipe.workers, 1);
  const auto job = prepare(std::move(recipe), started, options.out, at::get_num_threads() / share);
  if (options.dry_run) return dry_run(job, options, started);
  if (job.recipe.workers > 1 && !place) {
    auto words = command_line();
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    const auto count = static_cast<int>(job.recipe.workers);
    throw Exit{train::run_workers(count, static_cast<int>(job.recipe.threads),
                                  static_cast<int>(argv.size()), argv.data())};
  }
  train::as_worker([&] {
    run_worker(job, options, started, place ? train::Workers::join(*place) : train::Workers());
  });
}

}  // namespace

void add_train_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("train", "Train a model on text or on a task, and resume");
  verb->add_option("--run", options->run, "Take flags from a file: lr = 0.001, one a line")
      ->option_text("FILE.toml");
  add_recipe_flags(*verb);
  verb->add_option("--out", options->out, "The run's folder")->option_text("DIR");
  verb->add_flag("--resume", options->resume, "Go on with the run in --out");
  verb->add_flag("--dry-run", options->dry_run, "Print the plan and exit");
  verb->add_flag("--json", options->json, "Print JSON and nothing else on stdout");
  verb->add_flag("--quiet", options->quiet, "No progress on stderr");
  verb->callback([options, verb] { run_verb([&] { run_train(*options, *verb); }); });
}

}  // namespace bmojo
