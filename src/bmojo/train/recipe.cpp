#include "bmojo/train/recipe.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numbers>
#include <utility>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/printable.h"
#include "bmojo/base/random.h"
#include "bmojo/base/run_file.h"
#include "bmojo/model/tensors.h"

namespace bmojo::train {
namespace {

constexpr int64_t kBatchTokens = int64_t{1} << 19, kSegment = 2048, kTaskSequences = 64;
constexpr int64_t kTokensAtOnce = 8192, kTokensPerParameter = 20, kEvalTokens = 65536;

// Of the steps, when a shrinking memory has reached the places used.
constexpr double kShrunkAt = 0.8;
// The name of the draws of --cut-places drawn.
constexpr uint64_t kCutDraws = 0x637574;

std::string toml(const std::string& value) { return base::toml_text(value); }
std::string toml(bool value) { return value ? "true" : "false"; }
std::string toml(int64_t value) { return fmt::format("{}", value); }
std::string toml(double value) { return fmt::format("{}", value); }
std::string toml(const std::vector<std::string>& values) {
  std::vector<std::string> items;
  for (const auto& value : values) items.push_back(base::toml_text(value));
  return fmt::format("[{}]", fmt::join(items, ", "));
}

bool is_empty(const Field&, const std::string& value) { return value.empty(); }
bool is_empty(const Field&, const std::vector<std::string>& value) { return value.empty(); }
bool is_empty(const Field&, bool value) { return !value; }
bool is_empty(const Field& field, int64_t value) { return value < field.least; }
bool is_empty(const Field&, double value) { return value < 0; }

// Of two lists the first entries that differ: as wholes they may be long.
std::pair<std::string, std::string> first_difference(const base::Json& started,
                                                     const base::Json& now) {
  if (!started.is_array() || !now.is_array()) return {started.dump(), now.dump()};
  size_t i = 0;
  while (i < started.size() && i < now.size() && started[i] == now[i]) ++i;
  const auto entry = [i](const base::Json& list) {
    return i < list.size() ? list[i].dump() : std::string("none");
  };
  return {fmt::format("{} in place {}", entry(started), i + 1), entry(now)};
}

// Of whatever is counted.
constexpr int64_t kMost = int64_t{1} << 40, kMostThreads = 4096;

// The largest number of sequences that divides and keeps to `most` tokens.
int64_t sequences_at_once(int64_t sequences, int64_t span, int64_t most) {
  int64_t best = 1;
  for (int64_t n = 1; n <= sequences && n * span <= most; ++n)
    if (sequences % n == 0) best = n;
  return best;
}

void check_ranges(const Recipe& r) {
  const auto within = [](std::string_view name, double value, double low, double high) {
    base::require(value >= low && value <= high, "--{}: must be from {} to {}, got {}", name, low,
                  high, value);
  };
  const auto at_least = [](std::string_view name, int64_t value, int64_t low) {
    base::require(value >= low && value <= kMost, "--{}: must be from {} to 2^40, got {}", name,
                  low, value);
  };
  at_least("steps", r.steps, 0);
  at_least("tokens", r.tokens, 0);
  at_least("batch-tokens", r.batch_tokens, 0);
  at_least("micro-batch", r.micro_batch, 0);
  at_least("segment", r.segment, 0);
  at_least("bptt", r.bptt, 0);
  if (r.context != kChosen) at_least("context", r.context, 0);
  base::require(r.seed >= 0, "--seed: must be at least 0, got {}", r.seed);
  base::require(r.workers >= 1 && r.workers <= kMostWorkers,
                "--workers: must be from 1 to {}, got {}", kMostWorkers, r.workers);
  base::require(r.threads >= 0 && r.threads <= kMostThreads,
                "--threads: must be from 0 to {}, got {}", kMostThreads, r.threads);
  at_least("keep", r.keep, 0);
  if (r.eval_every != kChosen) at_least("eval-every", r.eval_every, 0);
  at_least("eval-tokens", r.eval_tokens, 0);
  at_least("sample-every", r.sample_every, 0);
  at_least("sample-tokens", r.sample_tokens, 1);
  at_least("max-skips", r.max_skips, 1);
  within("warmup", r.warmup, 0, 1);
  within("beta1", r.beta1, 0, 0.999999);
  within("beta2", r.beta2, 0, 0.999999);
  within("weight-decay", r.weight_decay, 0, 1e6);
  within("clip", r.clip, 0, 1e30);
  if (r.lr != kChosen) within("lr", r.lr, 0, 1e6);
  if (r.ssm_lr != kChosen) within("ssm-lr", r.ssm_lr, 0, 1e6);
  within("min-lr", r.min_lr, 0, 1e6);
  within("max-minutes", r.max_minutes, 0, 1e9);
  within("val-fraction", r.val_fraction, 0, 0.99);
  within("shadow", r.shadow, 1, 1e6);
  within("cut-from", r.cut_from, 0, 1);
  base::require(r.cut_places == "used" || r.cut_places == "drawn" || r.cut_places == "shrinking",
                "--cut-places: must be used, drawn or shrinking, got {}",
                base::in_quotes(r.cut_places));
  base::require(r.cut_places != "shrinking" || r.cut_from < kShrunkAt,
                "--cut-from: must be below {} with --cut-places shrinking, got {}", kShrunkAt,
                r.cut_from);
  within("cut-temperature", r.cut_temperature, 1e-6, 1e6);
  base::require(r.cut_level == "held" || r.cut_level == "moving",
                "--cut-level: must be held or moving, got {}", base::in_quotes(r.cut_level));
  within("stop-accuracy", r.stop_accuracy, 0, 1);
  base::require(r.stop_accuracy == 0 || (!r.task.empty() && r.eval_every != 0),
                "--stop-accuracy: needs validations on a --task, got {}",
                r.task.empty() ? "text" : "--eval-every 0");
}

void check_memory(const Recipe& r, const model::Config& config, int64_t task_length) {
  if (!config.has(model::LayerKind::bmojo) || config.eidetic_tokens == 0) return;
  base::require(config.eidetic_rule != "oracle" || task_length > 0,
                "eidetic_rule: oracle keeps what the answers of a --task need, got --data");
  base::require(r.shadow == 1 || config.eidetic_rule == "innovation",
                "--shadow: needs eidetic_rule = innovation, got {}", config.eidetic_rule);
  model::validate(training_config(r, config));
}

// Segment, bptt and context: how a sequence is read.
void resolve_sequences(Recipe& r, int64_t task_length) {
  if (task_length > 0) {
    if (r.segment == 0) r.segment = r.bptt > 0 ? task_length / r.bptt : task_length;
    if (r.bptt == 0) r.bptt = task_length / r.segment;
    base::require(r.segment * r.bptt == task_length,
                  "--segment x --bptt: must be the task's length = {}, got {} x {}", task_length,
                  r.segment, r.bptt);
    base::require(r.context <= 0 || r.context == task_length,
                  "--context: must be the task's length = {}, got {}", task_length, r.context);
    r.context = task_length;
    return;
  }
  if (r.segment == 0) r.segment = r.context > 0 ? std::min(r.context, kSegment) : kSegment;
  if (r.bptt == 0) r.bptt = 1;
  base::require(r.bptt <= kMost / r.segment,
                "--segment x --bptt: must be at most 2^40, got {} x {}", r.segment, r.bptt);
  const int64_t span = r.segment * r.bptt;
  if (r.context == kChosen) r.context = span;
  base::require(r.context % span == 0,
                "--context: must be a multiple of segment x bptt = {} (or 0, endless), got {}",
                span, r.context);
}

}  // namespace

void make_paths_absolute(Recipe& recipe) {
  const auto make_absolute = [](std::string& name) { name = base::absolute_path(name).string(); };
  make_absolute(recipe.config);
  make_absolute(recipe.init_from);
  for (auto& name : recipe.data) make_absolute(name);
  for (auto& name : recipe.val_data) make_absolute(name);
}

std::string to_toml(const Recipe& recipe) {
  std::string text;
  for_each_field(recipe, [&](const Field& field, const auto& value) {
    if (!is_empty(field, value)) text += fmt::format("{} = {}\n", field.name, toml(value));
  });
  return text;
}

base::Json fixed_fields(const Recipe& recipe) {
  base::Json fields = {{"model", !recipe.init_from.empty() ? "by --init-from"
                                 : !recipe.config.empty()  ? "by --config"
                                                           : "by --preset"}};
  for_each_field(recipe, [&](const Field& field, const auto& value) {
    if (field.fixed) fields[std::string(field.name)] = value;
  });
  return fields;
}

base::Json said_fields(const Recipe& recipe) {
  const auto fields = fixed_fields(recipe);
  base::Json said = base::Json::object();
  for (const auto& [name, value] : fields.items())
    if (!value.is_number() || value.get<double>() > 0) said[name] = value;
  return said;
}

void require_same(const base::Json& started, const base::Json& now, const std::string& folder) {
  for (const auto& [name, value] : now.items()) {
    if (!started.contains(name) || started[name] == value) continue;  // or younger than the run
    const auto [expected, got] = first_difference(started[name], value);
    base::fail(
        "--resume: {} must be {}, as {} was started, got {}; to change it, start anew in another "
        "--out",
        name, expected, folder, got);
  }
}

Every parse_every(const std::string& text) {
  const bool minutes = text.ends_with('m');
  const std::string_view digits(text.data(), text.size() - (minutes ? 1 : 0));
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  base::require(error == std::errc() && end == digits.data() + digits.size() && value >= 1,
                "--save-every: must be steps like 500 or minutes like 10m, at least 1, got {}",
                base::in_quotes(text));
  return minutes ? Every{0, static_cast<double>(value)} : Every{value, 0};
}

Plan resolve(Recipe& r, const model::Config& config, int64_t task_length) {
  check_ranges(r);
  check_memory(r, config, task_length);
  parse_every(r.save_every);
  base::require(r.steps == 0 || r.tokens == 0,
                "--steps and --tokens: must be one of them, got both");
  resolve_sequences(r, task_length);

  Plan plan;
  plan.parameters = model::count_parameters(config);
  plan.span = r.segment * r.bptt;
  plan.carries = r.context != plan.span;
  base::require(r.micro_batch <= kMost / plan.span, "--micro-batch: must be at most {}, got {}",
                kMost / plan.span, r.micro_batch);
  if (r.batch_tokens == 0) {
    const int64_t wanted = task_length > 0 ? kTaskSequences * task_length : kBatchTokens;
    const int64_t unit = plan.span * std::max<int64_t>(r.micro_batch, 1) * r.workers;
    r.batch_tokens = std::max<int64_t>(wanted / unit, 1) * unit;
  }
  base::require(r.batch_tokens % (plan.span * r.workers) == 0,
                "--batch-tokens: must be a multiple of {} (segment x bptt x workers), got {}",
                plan.span * r.workers, r.batch_tokens);
  plan.num_sequences = r.batch_tokens / plan.span;
  const int64_t sequences = plan.num_sequences / r.workers;
  if (r.micro_batch == 0) r.micro_batch = sequences_at_once(sequences, plan.span, kTokensAtOnce);
  base::require(sequences % r.micro_batch == 0,
                "--micro-batch: must divide the {} sequences of a worker's "
                "step, got {}",
                sequences, r.micro_batch);
  plan.num_micro = sequences / r.micro_batch;

  if (r.steps == 0) {
    const int64_t tokens = r.tokens > 0 ? r.tokens : kTokensPerParameter * plan.parameters;
    r.steps = (tokens - 1) / r.batch_tokens + 1;  // the last may read more than is left
  }
  base::require(r.steps <= INT64_MAX / r.batch_tokens,
                "--steps x --batch-tokens: must be below 2^63, got {} x {}", r.steps,
                r.batch_tokens);
  r.tokens = 0;  // said by the steps
  plan.num_steps = r.steps;
  if (r.lr == kChosen) r.lr = default_rate(plan.parameters);
  if (r.ssm_lr == kChosen) r.ssm_lr = default_ssm_rate(plan.parameters);
  if (r.eval_every == kChosen) r.eval_every = std::max<int64_t>(r.steps / 10, 1);
  if (r.eval_tokens == 0) r.eval_tokens = kEvalTokens;
  return plan;
}

model::Config training_config(const Recipe& recipe, const model::Config& config) {
  model::Config wide = config;
  wide.eidetic_tokens =
      std::llround(std::ceil(recipe.shadow * static_cast<double>(config.eidetic_tokens)));
  return wide;
}

// Between all places (0) and those used (1) in equal ratios.
nn::SoftCut cut_at(int64_t step, const Recipe& recipe, const model::Config& config) {
  const double at = static_cast<double>(step) / static_cast<double>(recipe.steps);
  if (recipe.shadow == 1 || at < recipe.cut_from) return {};
  double part = 1;
  if (recipe.cut_places == "drawn")
    part =
        base::Random({static_cast<uint64_t>(recipe.seed), static_cast<uint64_t>(step), kCutDraws})
            .uniform();
  if (recipe.cut_places == "shrinking")
    part = std::min((at - recipe.cut_from) / (kShrunkAt - recipe.cut_from), 1.0);
  const double places =
      static_cast<double>(config.eidetic_tokens) * std::pow(recipe.shadow, 1 - part);
  return {.places = std::llround(places),
          .temperature = recipe.cut_temperature,
          .level_moves = recipe.cut_level == "moving"};
}

void check_trainable(const model::Config& config) {
  base::require(!config.has(model::LayerKind::bmojo) || config.fading_tokens > 0 ||
                    config.fading_residual || (config.innovation_bias && config.eidetic_tokens > 0),
                "config: fading_tokens = 0 needs fading_residual or innovation_bias to train, got "
                "neither; the SSM would receive no gradient");
}

double default_rate(int64_t parameters) {
  struct Published {
    double parameters, rate;
  };
  constexpr std::array kGpt3 = {Published{125e6, 6e-4},   Published{350e6, 3e-4},
                                Published{760e6, 2.5e-4}, Published{1.3e9, 2e-4},
                                Published{2.7e9, 1.6e-4}, Published{6.7e9, 1.2e-4},
                                Published{13e9, 1e-4}};
  const auto n = static_cast<double>(parameters);
  if (n <= kGpt3.front().parameters) return kGpt3.front().rate;
  for (size_t i = 1; i < kGpt3.size(); ++i) {
    const auto& [high, high_rate] = kGpt3[i];
    const auto& [low, low_rate] = kGpt3[i - 1];
    if (n > high) continue;
    const double part = std::log(n / low) / std::log(high / low);
    return low_rate * std::pow(high_rate / low_rate, part);
  }
  return kGpt3.back().rate;
}

double rate_at(int64_t step, double peak, const Recipe& recipe) {
  const auto steps = static_cast<double>(recipe.steps);
  const double warmup = std::max(std::ceil(recipe.warmup * steps), 1.0);
  const auto at = static_cast<double>(step);
  if (at < warmup) return peak * (at + 1) / warmup;
  const double low = std::min(recipe.min_lr, peak);
  const double part = (at - warmup) / std::max(steps - 1 - warmup, 1.0);
  return low + 0.5 * (peak - low) * (1 + std::cos(std::numbers::pi * std::min(part, 1.0)));
}

}  // namespace bmojo::train
