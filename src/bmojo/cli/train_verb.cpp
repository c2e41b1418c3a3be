#include <stdlib.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <utility>

#include "bmojo/base/digest.h"
#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/printable.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/torch_verbs.h"
#include "bmojo/model/flops.h"
#include "bmojo/model/tensors.h"
#include "bmojo/nn/linear_cross_entropy.h"
#include "bmojo/train/launch.h"
#include "bmojo/train/run_file.h"
#include "bmojo/train/trainer.h"

namespace bmojo {
namespace {
namespace fs = std::filesystem;
using train::Plan;
using train::Recipe;

struct Options {
  Recipe recipe;
  std::string run, out;
  bool resume = false, dry_run = false, quiet = false, json = false;
};

std::string flag_of(std::string_view field) {
  std::string name = "--" + std::string(field);
  std::ranges::replace(name, '_', '-');
  return name;
}

void add_field(CLI::App& app, const train::Field& field, bool& value) {
  app.add_flag(flag_of(field.name), value, std::string(field.help));
}
void add_field(CLI::App& app, const train::Field& field, std::vector<std::string>& value) {
  auto* option = app.add_option(flag_of(field.name), value, std::string(field.help))
                     ->option_text(std::string(field.value));
  if (field.name == "set") option->allow_extra_args(false);
}
template <typename Value>
void add_field(CLI::App& app, const train::Field& field, Value& value) {
  auto* option = app.add_option(flag_of(field.name), value, std::string(field.help))
                     ->option_text(std::string(field.value))
                     ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  if (!std::is_arithmetic_v<Value>) return;
  option->check([least = field.least](const std::string& text) {  // inside, less means: chosen
    const bool is_less =
        text.starts_with('-') || (least > 0 && std::strtoll(text.c_str(), nullptr, 0) < least);
    return is_less ? fmt::format("must be at least {}, got {}", least, text) : "";
  });
}

void add_recipe(CLI::App& app, Recipe& recipe) {
  for_each_field(recipe,
                 [&](const train::Field& field, auto& value) { add_field(app, field, value); });
}

enum class FieldKind { none, one, list };

FieldKind kind_of(std::string_view name) {
  auto kind = FieldKind::none;
  Recipe any;
  for_each_field(any, [&]<typename Value>(const train::Field& field, Value&) {
    constexpr bool kIsList = std::is_same_v<Value, std::vector<std::string>>;
    if (field.name == name) kind = kIsList ? FieldKind::list : FieldKind::one;
  });
  return kind;
}

// `--field=value`, wherever it was said.
struct Flag {
  std::string field, value;
};
using Flags = std::vector<Flag>;

Recipe parse_flags(const Flags& flags) {
  std::vector<std::string> words;
  for (const auto& flag : flags)
    words.push_back(fmt::format("{}={}", flag_of(flag.field), flag.value));
  std::ranges::reverse(words);  // as CLI11 wants them
  CLI::App app;
  Recipe recipe;
  add_recipe(app, recipe);
  app.parse(words);
  return recipe;
}

Flags flags_given(const CLI::App& given) {
  Flags flags;
  for (const auto* option : given.get_options())
    for (const auto& value : option->results()) {
      auto field = option->get_lnames().front();
      std::ranges::replace(field, '-', '_');
      if (kind_of(field) != FieldKind::none) flags.push_back({field, value});
    }
  return flags;
}

Flags flags_of_item(const train::RunFileItem& item) {
  const auto kind = kind_of(item.key);
  require(kind != FieldKind::none, "{}: key {} is not known", item.where, in_quotes(item.key));
  require(!item.is_list || kind == FieldKind::list, "{}: key {} must have one value, got a list",
          item.where, in_quotes(item.key));
  Flags flags;
  for (const auto& value : item.values) {
    require(!value.empty(), "{}: key {} must hold text, got none; leave it out", item.where,
            in_quotes(item.key));
    flags.push_back({item.key, value});
  }
  try {
    parse_flags(flags);
  } catch (const CLI::ParseError& mistake) {
    fail("{}: {}", item.where, mistake.what());
  }
  return flags;
}

// A run file as the flags it stands for.
Flags flags_of_file(const fs::path& path) {
  std::error_code ignored;
  require(fs::is_regular_file(path, ignored), "--run: must be a readable file, got {}",
          in_quotes(path.string()));
  Flags flags;
  for (const auto& item : train::parse_run_file(read_text(path), shown(path))) {
    // As earlier versions wrote it: the steps count.
    if (item.key == "tokens" && item.values == std::vector<std::string>{"0"}) continue;
    for (auto& flag : flags_of_item(item)) flags.push_back(std::move(flag));
  }
  return flags;
}

// The field that says the same in another way.
std::string_view other_way(std::string_view field) {
  using Pair = std::pair<std::string_view, std::string_view>;
  for (const auto& [one, other] :
       {Pair{"data", "task"}, Pair{"val_data", "val_fraction"}, Pair{"steps", "tokens"}}) {
    if (field == one) return other;
    if (field == other) return one;
  }
  return "";
}

// What is said later counts: lists are not added to (but for `set`, where that is asked for), and
// of two ways to say the same the later one is taken.
Flags overridden(const Flags& before, const Flags& later, bool adds_set) {
  const auto is_given = [&](std::string_view field) {
    return std::ranges::any_of(later, [&](const Flag& flag) { return flag.field == field; });
  };
  Flags flags;
  for (const auto& flag : before)
    if ((adds_set && flag.field == "set") ||
        (!is_given(flag.field) && !is_given(other_way(flag.field))))
      flags.push_back(flag);
  flags.insert(flags.end(), later.begin(), later.end());
  return flags;
}

fs::path run_file(const Options& options) {
  const auto path = fs::path(options.out) / train::kRunFile;
  require(fs::exists(path), "--out: must be the folder of a run to resume, got {} without {}",
          in_quotes(options.out), train::kRunFile);
  return path;
}

// Defaults, then a resumed run's own file, then --run, then what was given on the command line.
Recipe merged_recipe(const Options& options, const CLI::App& given) {
  auto flags = flags_given(given);
  if (!options.run.empty()) flags = overridden(flags_of_file(options.run), flags, true);
  if (options.resume) flags = overridden(flags_of_file(run_file(options)), flags, false);
  auto recipe = parse_flags(flags);
  make_paths_absolute(recipe);
  if (!recipe.task.empty()) recipe.task = parse_task(recipe.task).text;
  // The file of a run says it in steps.
  if (options.resume && recipe.tokens > 0 && recipe.steps == 0 && recipe.batch_tokens > 0)
    recipe.steps = train::steps_for_tokens(std::exchange(recipe.tokens, 0), recipe.batch_tokens);
  return recipe;
}

// A run goes on with the recipe it was started with.
void check_recipe(const Recipe& recipe, const Options& options) {
  auto started = parse_flags(flags_of_file(run_file(options)));
  make_paths_absolute(started);
  train::require_same(fixed_fields(started), fixed_fields(recipe), options.out);
}

std::vector<fs::path> paths(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

struct Job {
  Recipe recipe;
  Config config;
  Plan plan;
  std::optional<Task> task;
  std::shared_ptr<const TokenData> data;
};

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
          "--init-from: excludes --preset and --config");
  if (!from) return resolve(ModelChoice{recipe.preset, recipe.config, recipe.set});
  auto config = load_config(checkpoint_folder(recipe.init_from));
  apply_memory_settings(config, recipe.set);
  return config;
}

// The config of a run that goes on is the one it was started with. Its file may be gone, but where
// it is there it must say the same.
void check_config(const Job& job, const Config& saved, const std::string& out) {
  if (job.recipe.config.empty() || !fs::exists(job.recipe.config)) return;
  Job again = job;
  again.config = model_config(job.recipe);
  set_vocabulary(again);
  train::require_same(to_json(saved), to_json(again.config), out);
}

// Reads what the recipe names and fills in what it leaves open.
Job prepare(Recipe recipe, const std::optional<Config>& saved, const std::string& out,
            int64_t threads) {
  Job job;
  require(recipe.task.empty() != recipe.data.empty(), "--task or --data: one is needed, got {}",
          recipe.task.empty() ? "neither" : "both");
  if (!recipe.task.empty()) {
    job.task = parse_task(recipe.task);
    require(recipe.val_data.empty() && recipe.val_fraction == 0,
            "--task: validates on fresh sequences, excludes --val-data and --val-fraction");
  } else {
    job.data = std::make_shared<TokenData>(paths(recipe.data));
  }
  if (recipe.threads == 0) recipe.threads = std::max<int64_t>(threads, 1);
  job.recipe = std::move(recipe);
  if (saved) {
    check_config(job, *saved, out);
    job.config = *saved;
  } else {
    job.config = model_config(job.recipe);
    set_vocabulary(job);
    if (job.data && !job.recipe.init_from.empty())
      require_tokenizer_of(checkpoint_folder(job.recipe.init_from), *job.data);
  }
  validate(job.config);
  train::check_trainable(job.config);
  job.plan = train::resolve(job.recipe, job.config, job.task ? job.task->length : 0);
  return job;
}

double memory_estimate(const Job& job) {
  const auto& [recipe, config, plan, task, data] = job;
  const auto tokens = static_cast<double>(recipe.micro_batch * plan.span);
  // Weights, gradients and both moments; with others also the buckets that gradients are summed in.
  const double weights = (recipe.workers > 1 ? 20 : 16) * static_cast<double>(plan.parameters);
  double carried = 0;
  if (plan.carries)
    carried = static_cast<double>(plan.num_micro * recipe.micro_batch) *
              static_cast<double>(memory_bytes(config, recipe.context).total());
  if (plan.num_micro > 1) carried *= 2;  // a step keeps the memories it began with until it ends
  return weights + carried + tokens * activation_bytes_per_token(config, recipe.recompute) +
         static_cast<double>(nn::loss_buffer_bytes(config.vocab_size));
}

void print_plan(const Job& job, bool json) {
  const auto& [recipe, config, plan, task, data] = job;
  if (json)
    return print_json({{"parameters", plan.parameters},
                       {"steps", plan.num_steps},
                       {"tokens", plan.num_tokens()},
                       {"tokens_per_step", plan.tokens_per_step()},
                       {"sequences_per_step", plan.num_rows},
                       {"micro_batches", plan.num_micro},
                       {"segment", recipe.segment},
                       {"bptt", recipe.bptt},
                       {"context", recipe.context},
                       {"lr", recipe.lr},
                       {"ssm_lr", recipe.ssm_lr},
                       {"memory_bytes", memory_estimate(job)},
                       {"flops", training_flops_per_token(config, plan.span) *
                                     static_cast<double>(plan.num_tokens())}});
  fmt::print("parameters    {} ({} without embeddings)\n", grouped(plan.parameters),
             grouped(count_parameters_without_embeddings(config)));
  fmt::print("reads         {}\n",
             task ? task->text
                  : fmt::format("{} tokens, {} documents", grouped(data->num_tokens()),
                                grouped(data->num_documents())));
  fmt::print("steps         {} of {} tokens: {} sequences of {}\n", grouped(plan.num_steps),
             grouped(plan.tokens_per_step()), grouped(plan.num_rows), grouped(plan.span));
  fmt::print("at once       {} sequences, segments of {}, gradients through {}\n",
             recipe.micro_batch, recipe.segment, recipe.bptt);
  fmt::print("memories      {}\n", !plan.carries ? "start afresh with every sequence"
                                   : recipe.context == 0
                                       ? "carried without end"
                                       : fmt::format("carried over {} tokens", recipe.context));
  fmt::print("total         {} tokens, {:.1f} a parameter\n", grouped(plan.num_tokens()),
             static_cast<double>(plan.num_tokens()) / static_cast<double>(plan.parameters));
  fmt::print("rates         {:g}, SSM {:g}, to {:g}; warm-up {:g}\n", recipe.lr, recipe.ssm_lr,
             recipe.min_lr, recipe.warmup);
  fmt::print("workers       {} with {} threads\n", recipe.workers, recipe.threads);
  fmt::print("memory        about {} a worker\n", si(memory_estimate(job), "B"));
}

// As a checkpoint has it too, but before there is one.
void check_source(const fs::path& out, const train::Source& source) {
  if (const auto record = train::load_record(out))
    train::require_same(record->source, source.identity(), out.string());
}

// What would end the run before its first step. Writes nothing.
void check_start(const Job& job, const Options& options) {
  const train::Source source(job.recipe, job.plan, job.task, job.data);
  if (options.resume)
    check_source(options.out, source);
  else if (!options.out.empty())
    train::check_new(options.out);
}

// Floating-point operations a second in a product of matrices, best of five.
double sgemm_limit() {
  const auto a = at::rand({1024, 1024}), b = at::rand({1024, 1024});
  double best = INFINITY;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    at::mm(a, b);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count());
  }
  return 2 * 1024.0 * 1024 * 1024 / best;
}

nn::Parameters initial_parameters(const Job& job) {
  if (job.recipe.init_from.empty())
    return nn::fresh_parameters(job.config, static_cast<uint64_t>(job.recipe.seed));
  auto parameters = nn::load_parameters(Checkpoint(checkpoint_folder(job.recipe.init_from)));
  for (auto& [name, tensor] : parameters) tensor = tensor.clone();  // not the mapped file's pages
  return parameters;
}

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
                       {"out", options.out}});
  fmt::print("{}: step {}, loss {:.4f}{}\n", options.out, trainer.num_steps_done(),
             trainer.last_loss(), best ? fmt::format(", best validation {:.4f}", *best) : "");
  if (!options.quiet)
    fmt::print(stderr, "{} in all, {:.1f} % of it reading, logging and saving\n",
               clock_text(trainer.seconds_running()),
               100 * overhead.total() / trainer.seconds_running());
}

std::string digest_of(const nn::Model& model) {
  Digest digest;
  for (const auto& [name, tensor] : model.parameters()) {
    const auto dense = tensor.detach().contiguous();
    digest.update(std::as_bytes(std::span(dense.data_ptr<float>(), dense.numel())));
  }
  return digest.text();
}

// Nothing is written before everything the recipe names has been read.
void run_worker(const Job& job, const Options& options, const train::Workers& workers) {
  const fs::path out = options.out;
  use_threads(job.recipe.threads);
  train::Source source(job.recipe, job.plan, job.task, job.data);
  nn::Parameters parameters;
  if (!options.resume) parameters = initial_parameters(job);
  // Each has read its own files, and on several machines its own command line.
  workers.require_same("the recipe", fixed_fields_without_paths(job.recipe).dump());
  workers.require_same("the data", source.identity().dump());
  workers.require_same("the config", to_json(job.config).dump());
  if (options.resume) check_source(out, source);
  std::optional<LockedFile> lock;
  int64_t step = -1;
  if (workers.first()) {
    if (!options.resume) train::create(out, {job.config, source.identity()}, to_toml(job.recipe));
    lock.emplace(out / train::kRunFile, "--out");
    train::remove_unfinished(out);
    const auto say = [](const std::string& text) { fmt::print(stderr, "{}\n", text); };
    step = train::find_checkpoint(out, say).value_or(-1);
  }
  step = static_cast<int64_t>(workers.max(static_cast<double>(step)));
  if (step >= 0) {
    parameters = nn::empty_parameters(job.config, at::kFloat);
  } else if (options.resume) {
    if (!job.recipe.init_from.empty())
      train::require_same(to_json(job.config), to_json(model_config(job.recipe)), options.out);
    parameters = initial_parameters(job);
  }
  train::Trainer trainer(job.recipe, job.plan, nn::Model(job.config, std::move(parameters)),
                         std::move(source), workers,
                         {.out = out,
                          .stop_asked = [] { return interrupted_by() != 0; },
                          .quiet = options.quiet,
                          .flops_limit = workers.first() && !options.quiet ? sgemm_limit() : 0});
  if (step >= 0)
    trainer.resume(step);
  else if (workers.first())
    train::cut_metrics(out, 0);
  if (workers.count() > 1) workers.require_same("the weights", digest_of(trainer.model()));
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
  // MKL repeats its sums to the bit only in this mode; it is read at the first product.
  setenv("MKL_CBWR", "AUTO", /*overwrite=*/0);
  require(options.dry_run || !options.out.empty(), "--out: must name the run's folder, got none");
  auto recipe = merged_recipe(options, given);
  const auto place = train::place_from_environment();
  if (place) {
    require(given.get_option("--workers")->count() == 0 || recipe.workers == place->count,
            "--workers: must be as many as were started = {}, got {}; leave it out", place->count,
            recipe.workers);
    recipe.workers = place->count;
  }
  if (options.resume) check_recipe(recipe, options);
  // A worker that was started as one already has its share of the threads.
  const int64_t share = place ? 1 : std::max<int64_t>(recipe.workers, 1);
  const auto saved = options.resume ? train::saved_config(options.out) : std::nullopt;
  const auto job = prepare(std::move(recipe), saved, options.out, at::get_num_threads() / share);
  if (options.dry_run) {
    check_start(job, options);
    return print_plan(job, options.json);
  }
  if (job.recipe.workers > 1 && !place) {
    auto words = command_line();
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    const auto count = static_cast<int>(job.recipe.workers);
    throw Exit{train::run_workers(count, static_cast<int>(job.recipe.threads),
                                  static_cast<int>(argv.size()), argv.data())};
  }
  train::as_worker(
      [&] { run_worker(job, options, place ? train::Workers::join(*place) : train::Workers()); });
}

}  // namespace

void add_train_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("train", "Train a model on text or on a task, and resume");
  verb->add_option("--run", options->run, "Take flags from a file: lr = 0.001, one a line")
      ->option_text("FILE.toml");
  add_recipe(*verb, options->recipe);
  verb->add_option("--out", options->out, "The run's folder")->option_text("DIR");
  verb->add_flag("--resume", options->resume, "Go on with the run in --out");
  verb->add_flag("--dry-run", options->dry_run, "Print the plan and exit");
  verb->add_flag("--json", options->json, "Print JSON and nothing else on stdout");
  verb->add_flag("--quiet", options->quiet, "No progress on stderr");
  verb->callback([options, verb] { run_verb([&] { run_train(*options, *verb); }); });
}

}  // namespace bmojo
