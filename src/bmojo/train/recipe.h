#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bmojo/base/json.h"
#include "bmojo/model/config.h"
#include "bmojo/nn/ops/eidetic_bias.h"

namespace bmojo::train {

// Everything a run is started with. Names are those of the flags with _ for -, and of run.toml.
// 0 or empty means: chosen from the rest (see resolve); where 0 has a meaning, kChosen does.
inline constexpr int kChosen = -1;
inline constexpr int64_t kMostWorkers = 4096;
struct Recipe {
  std::string preset, config, init_from;
  std::vector<std::string> set;
  std::string task;
  std::vector<std::string> data, val_data;
  double val_fraction = 0;
  int64_t steps = 0, tokens = 0;
  int64_t batch_tokens = 0, micro_batch = 0, segment = 0, bptt = 0, context = kChosen;
  double lr = kChosen, ssm_lr = kChosen, min_lr = 1e-5, warmup = 0.05;
  double shadow = 1, cut_from = 0, cut_temperature = 0.1;
  std::string cut_places = "used", cut_level = "held";
  double beta1 = 0.9, beta2 = 0.95, weight_decay = 0.1, clip = 1;
  bool recompute = false;
  int64_t seed = 0, workers = 1, threads = 0;
  std::string save_every = "10m";
  int64_t keep = 2, eval_every = kChosen, eval_tokens = 0, sample_every = 0, sample_tokens = 64;
  double max_minutes = 0, stop_accuracy = 0;
  int64_t max_skips = 10;
};

struct Field {
  std::string_view name;
  std::string_view value;  // what --help shows in its place
  std::string_view help;
  // A resumed run must keep it. Config, weights and data are known by what they hold, not by paths.
  bool fixed = true;
  int64_t least = 0;  // that may be given; below it a number means: chosen
};

// The one list of fields: flags, run.toml and the comparison on --resume are all made from it.
template <typename AnyRecipe, typename Visit>
void for_each_field(AnyRecipe& r, Visit&& visit) {
  visit(Field{"preset", "NAME", "A model by name: bmojo config --list"}, r.preset);
  visit(Field{"config", "FILE", "A config.json, or a folder with one", false}, r.config);
  visit(Field{"set", "key=value", "Change a field of the config; may be repeated"}, r.set);
  visit(Field{"init_from", "DIR", "Start from the weights of a checkpoint", false}, r.init_from);
  visit(Field{"task", "NAME[:...]", "Train on a synthetic task: bmojo task NAME --show"}, r.task);
  visit(Field{"data", "PATH...", "Train on token shards, made by bmojo tokenize", false}, r.data);
  visit(Field{"val_data", "PATH...", "Validate on these shards", false}, r.val_data);
  visit(Field{"val_fraction", "F", "Hold out the last part of --data for validation"},
        r.val_fraction);
  visit(Field{"steps", "N", "Optimiser steps", true, 1}, r.steps);
  visit(Field{"tokens", "N", "The same in tokens [20 a parameter]", true, 1}, r.tokens);
  visit(Field{"batch_tokens", "N", "Tokens a step [524288; with --task 64 sequences]", true, 1},
        r.batch_tokens);
  visit(
      Field{"micro_batch", "SEQUENCES", "Sequences computed at once [about 8192 tokens]", true, 1},
      r.micro_batch);
  visit(Field{"segment", "TOKENS", "Tokens of a sequence computed at once [2048]", true, 1},
        r.segment);
  visit(Field{"bptt", "SEGMENTS", "Segments that gradients flow through [1]", true, 1}, r.bptt);
  visit(Field{"context", "TOKENS", "Tokens before a sequence starts afresh; 0 = never"}, r.context);
  visit(Field{"lr", "X", "Peak learning rate [by size]"}, r.lr);
  visit(Field{"ssm_lr", "X", "Peak learning rate of the SSM's weights [by size]"}, r.ssm_lr);
  visit(Field{"min_lr", "X", "Learning rate at the end [1e-5]"}, r.min_lr);
  visit(Field{"warmup", "FRACTION", "Part of the steps the rate rises over [0.05]"}, r.warmup);
  visit(Field{"shadow", "X", "Times as many eidetic places in training [1]", true, 1}, r.shadow);
  visit(Field{"cut_from", "FRACTION", "Part of the steps before the soft cut [0]"}, r.cut_from);
  visit(Field{"cut_places", "WORD", "Cut to: used, drawn or shrinking [used]"}, r.cut_places);
  visit(Field{"cut_temperature", "X", "Width of the soft cut, in log innovation [0.1]"},
        r.cut_temperature);
  visit(Field{"cut_level", "WORD", "Its level in the gradient: held or moving [held]"},
        r.cut_level);
  visit(Field{"beta1", "X", "AdamW's decay of the mean [0.9]"}, r.beta1);
  visit(Field{"beta2", "X", "AdamW's decay of the square [0.95]"}, r.beta2);
  visit(Field{"weight_decay", "X", "On matrices only [0.1]"}, r.weight_decay);
  visit(Field{"clip", "X", "Largest norm of the gradient; 0 = any [1]"}, r.clip);
  visit(Field{"recompute", "", "Compute layers twice, to save memory"}, r.recompute);
  visit(Field{"seed", "N", "Seed of weights and data [0]"}, r.seed);
  visit(Field{"workers", "N", "Processes that share each batch [1]"}, r.workers);
  visit(Field{"threads", "N", "Threads of each worker [all cores, shared]", true, 1}, r.threads);
  visit(Field{"save_every", "500|10m", "Checkpoint every so many steps or minutes [10m]", false},
        r.save_every);
  visit(Field{"keep", "N", "Checkpoints kept; 0 = all [2]", false}, r.keep);
  visit(Field{"eval_every", "STEPS", "Steps between validations; 0 = never [a tenth]", false},
        r.eval_every);
  visit(Field{"eval_tokens", "N", "Tokens of a validation [65536]", false, 1}, r.eval_tokens);
  visit(Field{"sample_every", "STEPS", "Show a sample every so many steps; 0 = never [0]", false},
        r.sample_every);
  visit(Field{"sample_tokens", "N", "Tokens of a sample [64]", false}, r.sample_tokens);
  visit(Field{"max_minutes", "M", "Save and stop after so many minutes; 0 = never [0]", false},
        r.max_minutes);
  visit(Field{"stop_accuracy", "X", "Stop when validation is that good; 0 = never [0]", false},
        r.stop_accuracy);
  visit(Field{"max_skips", "N", "Stop after so many skipped steps in a row [10]", false},
        r.max_skips);
}

// Paths as they are from any folder.
void make_paths_absolute(Recipe& recipe);

// A recipe as a run file: every field that is not empty.
std::string to_toml(const Recipe& recipe);
// {name: value} of the fields a resumed run must keep, and by which flag its model is given.
base::Json fixed_fields(const Recipe& recipe);
// The same before resolve(), without numbers that are not above 0: they may mean: chosen.
base::Json said_fields(const Recipe& recipe);
// Error naming the first field in which two runs differ; `folder` is the one that was started.
void require_same(const base::Json& started, const base::Json& now, const std::string& folder);

// "500" steps or "10m" minutes.
struct Every {
  int64_t steps = 0;
  double minutes = 0;
};
Every parse_every(const std::string& text);

// What the sequences of a batch are, in numbers.
struct Plan {
  int64_t parameters = 0;
  int64_t num_sequences = 0;  // of a step, over all workers
  int64_t span = 0;           // tokens a sequence brings to a step: segment x bptt
  int64_t num_micro = 0;      // micro-batches of a worker
  int64_t num_steps = 0;
  bool carries = false;  // memories go on from step to step
  int64_t tokens_per_step() const { return num_sequences * span; }
  int64_t num_tokens() const { return num_steps * tokens_per_step(); }
};

// Fills in what was left open, in place, and checks the rest: afterwards the recipe is complete.
// `task_length` is 0 with --data.
Plan resolve(Recipe& recipe, const model::Config& config, int64_t task_length);

// The config that is trained: with the eidetic places that --shadow adds.
model::Config training_config(const Recipe& recipe, const model::Config& config);
// How its places are cut back to those of the config at a step.
nn::SoftCut cut_at(int64_t step, const Recipe& recipe, const model::Config& config);

// Refuses what could run but not learn.
void check_trainable(const model::Config& config);

// Peak rates by size: those of GPT-3's models, and five times as much for SSMs, as Mamba's were
// trained; between the published sizes a line in log-log, beyond them the nearest.
double default_rate(int64_t parameters);
inline double default_ssm_rate(int64_t parameters) { return 5 * default_rate(parameters); }

// Linear warm-up over the first part of the steps, then half a cosine down to min_lr at the last.
double rate_at(int64_t step, double peak, const Recipe& recipe);

}  // namespace bmojo::train
