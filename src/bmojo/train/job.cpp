#include "bmojo/train/job.h"

#include <torch/torch.h>

#include <algorithm>

#include "bmojo/base/digest.h"
#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/model/choice.h"
#include "bmojo/train/recipe_words.h"

namespace bmojo::train {
namespace {
namespace fs = std::filesystem;

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
    base::require(config.vocab_size == needed, "vocab_size: must be the task's = {}, got {}",
                  needed, config.vocab_size);
  base::require(config.vocab_size >= needed, "vocab_size: must be at least the data's = {}, got {}",
                needed, config.vocab_size);
  if (recipe.preset.empty()) return;
  if (!is_set(recipe, "bos_token_id")) config.bos_token_id = -1;
  if (!is_set(recipe, "eos_token_id"))
    config.eos_token_id = job.data ? job.data->end_of_document() : -1;
}

model::Config model_config(const Recipe& recipe) {
  const bool from = !recipe.init_from.empty();
  base::require(!from || (recipe.preset.empty() && recipe.config.empty()),
                "--init-from: cannot be given with --preset or --config");
  if (!from) return model::resolve(model::ModelChoice{recipe.preset, recipe.config, recipe.set});
  auto config = model::load_config(model::checkpoint_folder(recipe.init_from));
  model::apply_memory_settings(config, recipe.set);
  return config;
}

std::string weights_digest(const Recipe& recipe) {
  return model::digest_of(model::TensorFolder(model::checkpoint_folder(recipe.init_from)));
}

// What the recipe names must hold the config and the weights that the run was started with.
void check_model(const Job& job, const Started& started, const std::string& out) {
  Job again = job;
  again.config = model_config(job.recipe);
  set_vocabulary(again);
  require_same(model::to_json(started.record.config), model::to_json(again.config), out);
  if (!job.recipe.init_from.empty())
    require_same(started.record.source, {{"weights", weights_digest(job.recipe)}}, out);
}

// Where the model came from is looked at again if it is named anew. A config's file may be gone,
// but where it is there it must say the same. Weights may be newer, once there is a checkpoint.
bool is_model_checked(const Recipe& recipe, const Recipe& started) {
  return recipe.config != started.config || recipe.init_from != started.init_from ||
         (!recipe.config.empty() && fs::exists(recipe.config));
}

// The files that go with given weights. Of those beside text only what is known to be its
// tokenizer's: the file of its kind, which prepare() has compared.
model::TokenizerFiles given_tokenizer(const Job& job) {
  if (job.recipe.init_from.empty()) return {};
  const auto folder = model::checkpoint_folder(job.recipe.init_from);
  if (job.data && data::tokenizer_digests(folder, job.data->tokenizer_name()).empty()) return {};
  return model::read_tokenizer_files(folder);
}

nn::Parameters initial_parameters(const Job& job) {
  if (job.recipe.init_from.empty())
    return nn::fresh_parameters(job.config, static_cast<uint64_t>(job.recipe.seed));
  auto parameters =
      nn::load_parameters(model::Checkpoint(model::checkpoint_folder(job.recipe.init_from)));
  for (auto& [name, tensor] : parameters) tensor = tensor.clone();  // not the mapped file's pages
  return parameters;
}

std::string digest_of(const nn::Model& model) {
  base::Digest digest;
  for (const auto& [name, tensor] : model.parameters()) {
    const auto dense = tensor.detach().contiguous();
    digest.update(std::as_bytes(std::span(dense.data_ptr<float>(), dense.numel())));
  }
  return digest.text();
}

// Makes a new run's folder and locks it before anything is written: of two that start there at once
// one is refused.
void start_run(const Job& job, const Source& source, const fs::path& out,
               std::optional<base::LockedFile>& lock) {
  check_new(out);
  base::create_folders(out, "--out");
  lock.emplace(out / kLockFile, "--out");
  auto identity = source.identity();
  if (!job.recipe.init_from.empty()) identity["weights"] = weights_digest(job.recipe);
  create(out, {job.config, identity}, to_toml(job.recipe));
}

}  // namespace

Started load_started(const fs::path& out) {
  check_started(out);
  return {load_recipe(out / model::kRunFile), load_record(out)};
}

Job prepare(Recipe recipe, const std::optional<Started>& started, const std::string& out,
            int64_t threads) {
  Job job;
  base::require(recipe.task.empty() != recipe.data.empty(),
                "--task or --data: one is needed, got {}",
                recipe.task.empty() ? "neither" : "both");
  if (!recipe.task.empty()) {
    job.task = data::parse_task(recipe.task);
    base::require(
        recipe.val_data.empty() && recipe.val_fraction == 0,
        "--task: cannot be given with --val-data or --val-fraction; it validates on fresh "
        "sequences");
  } else {
    job.data = open_data(recipe.data);
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
      data::require_tokenizer_of(model::checkpoint_folder(job.recipe.init_from), *job.data);
  }
  model::validate(job.config);
  check_trainable(job.config);
  job.plan = resolve(job.recipe, job.config, job.task ? job.task->length : 0);
  if (started) require_same(fixed_fields(started->recipe), fixed_fields(job.recipe), out);
  return job;
}

int64_t check_start(const Job& job, const Source& source, const std::optional<Started>& started,
                    const std::string& out, const Say& say) {
  const bool is_given = !job.recipe.init_from.empty();
  if (!started) {
    if (is_given) const model::Checkpoint whole(model::checkpoint_folder(job.recipe.init_from));
    given_tokenizer(job);
    if (!out.empty()) check_new(out);
    return 0;
  }
  require_same(started->record.source, source.identity(), out);
  const auto step = find_checkpoint(out, say);
  if (step)
    require_same_run(out, *step, job.recipe, source, job.config);
  else if (is_given)
    check_model(job, *started, out);
  return step.value_or(0);
}

void with_trainer(const Job& job, const std::string& out, const std::optional<Started>& started,
                  const Workers& workers, const WorkerCalls& calls,
                  const std::function<void(Trainer&)>& run) {
  Source source(job.recipe, job.plan, job.task, job.data);
  if (!started && workers.first()) check_new(out);
  calls.before(source);
  nn::Parameters parameters;
  model::TokenizerFiles tokenizer;
  if (!started) {
    parameters = initial_parameters(job);
    tokenizer = given_tokenizer(job);
  }
  // Each has read its own files, and on several machines its own command line.
  workers.require_same("the recipe", fixed_fields(job.recipe).dump());
  workers.require_same("the data", source.identity().dump());
  workers.require_same("the config", model::to_json(job.config).dump());
  if (started) require_same(started->record.source, source.identity(), out);
  std::optional<base::LockedFile> lock;
  int64_t step = -1;
  if (workers.first()) {
    if (started)
      lock.emplace(fs::path(out) / kLockFile, "--out");
    else
      start_run(job, source, out, lock);
    step = find_checkpoint(out, calls.say).value_or(-1);
  }
  step = static_cast<int64_t>(workers.max(static_cast<double>(step)));
  if (step >= 0) {
    parameters = nn::empty_parameters(job.config, at::kFloat);
  } else if (started) {
    if (!job.recipe.init_from.empty()) check_model(job, *started, out);
    parameters = initial_parameters(job);
    tokenizer = given_tokenizer(job);
  }
  Trainer trainer(job.recipe, job.plan, nn::Model(job.config, std::move(parameters)),
                  std::move(source), workers,
                  {.out = out,
                   .stop_asked = calls.stop_asked,
                   .quiet = calls.quiet,
                   .tokenizer = std::move(tokenizer)});
  if (step >= 0)
    trainer.resume(step);
  else if (workers.first())
    cut_metrics(out, 0);
  if (workers.count() > 1) workers.require_same("the weights", digest_of(trainer.model()));
  if (workers.first()) remove_unfinished(out);
  calls.starts(trainer, step >= 0 ? std::optional(step) : std::nullopt);
  run(trainer);
}

}  // namespace bmojo::train
