#include "bmojo/train/trainer.h"

#include <torch/torch.h>

#include <array>
#include <chrono>
#include <cmath>
#include <limits>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/memory.h"
#include "bmojo/base/printable.h"
#include "bmojo/data/unicode.h"
#include "bmojo/eval/generate.h"
#include "bmojo/eval/prompt.h"
#include "bmojo/nn/language_model.h"
#include "bmojo/train/backward.h"
#include "bmojo/train/progress_text.h"

namespace bmojo::train {
namespace {

constexpr size_t kSsmGroups = 2;  // the first two groups are the SSM's
// Looking into the memories costs more than a line of numbers does.
constexpr int64_t kMemoriesEvery = 20;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Adds the seconds until it goes out of scope.
class Stopwatch {
 public:
  explicit Stopwatch(double& total) : total_(total) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() { total_ += now() - start_; }

 private:
  double& total_;
  double start_ = now();
};

double norm_of(double a, double b) { return std::sqrt(a * a + b * b); }

}  // namespace

bool decays(const std::string& name) {
  return name.ends_with("proj.weight") || name.ends_with("conv1d.weight") ||
         name == "embedding.weight" || name == "head.weight";
}

bool is_ssm(const std::string& name) { return name.find(".ssm.") != std::string::npos; }

Trainer::Trainer(Recipe recipe, Plan plan, nn::Model model, Source source, Workers workers,
                 RunContext context)
    : recipe_(std::move(recipe)),
      plan_(plan),
      model_(std::move(model)),
      trained_(training_config(recipe_, model_.config()), model_.parameters()),
      source_(std::move(source)),
      workers_(std::move(workers)),
      context_(std::move(context)),
      save_every_(parse_every(recipe_.save_every)),
      line_(context_.quiet || !workers_.first()) {
  model_.require_gradients();
  // SSM with and without decay, then the rest.
  std::array<nn::AdamWGroup, 4> groups;
  std::array<std::vector<std::string>, 4> names;
  std::vector<at::Tensor> all;
  for (const auto& [name, tensor] : model_.parameters()) {
    const size_t group = (is_ssm(name) ? 0 : kSsmGroups) + (decays(name) ? 0 : 1);
    groups[group].parameters.push_back(tensor);
    groups[group].weight_decay = decays(name) ? recipe_.weight_decay : 0;
    names[group].push_back(name);
    all.push_back(tensor);
  }
  for (const auto& group : names) names_.insert(names_.end(), group.begin(), group.end());
  optimizer_ = std::make_unique<nn::AdamW>(
      std::vector<nn::AdamWGroup>(groups.begin(), groups.end()), recipe_.beta1, recipe_.beta2);
  buckets_ = std::make_unique<GradientBuckets>(workers_, all);
  if (plan_.carries) states_.resize(plan_.num_micro);
  if (!source_.tokenizer_text().empty())
    context_.tokenizer[data::tokenizer_file_name(source_.data()->tokenizer_name())] =
        source_.tokenizer_text();
  const bool is_text = source_.data() != nullptr && (source_.data()->tokenizer_name() == "bytes" ||
                                                     !source_.data()->tokenizer_file().empty());
  if (is_text && recipe_.sample_every > 0 && workers_.first()) {
    const auto file = source_.data()->tokenizer_file();
    tokenizer_ =
        data::load_tokenizer(file.empty() ? source_.data()->tokenizer_name() : file.string());
  }
  started_ = saved_at_ = now();
}

double Trainer::seconds_running() const { return now() - started_; }

Snapshot Trainer::snapshot() {
  const auto* data = source_.data();
  const auto tokenizer = data == nullptr ? base::Json()
                                         : base::Json{{"name", data->tokenizer_name()},
                                                      {"digest", data->tokenizer_digest()}};
  return {.model = model_,
          .optimizer = *optimizer_,
          .names = names_,
          .states = states_,
          .progress = {{"step", step_},
                       {"tokens", step_ * plan_.tokens_per_step()},
                       {"seconds", seconds_before_ + seconds_running()},
                       {"skipped", num_skipped_},
                       {"skipped_in_a_row", skipped_in_a_row_},
                       {"last_loss", last_loss_},
                       {"best_loss", best_loss_ ? base::Json(*best_loss_) : base::Json()},
                       {"best_step", best_step_},
                       {"val_accuracy", accuracy_},
                       {"recipe", fixed_fields(recipe_)},
                       {"source", source_.identity()},
                       {"tokenizer", tokenizer}},
          .tokenizer = context_.tokenizer};
}

void Trainer::resume(int64_t step) {
  const auto checkpoint = step_folder(context_.out, step);
  const auto progress = data::load_progress(checkpoint);
  require_same_run(context_.out, step, recipe_, source_, model_.config());
  load(checkpoint, snapshot(), workers_);
  step_ = saved_step_ = first_step_ = progress.at("step");
  seconds_before_ = progress.at("seconds");
  num_skipped_ = progress.at("skipped");
  skipped_in_a_row_ = progress.at("skipped_in_a_row");
  last_loss_ = progress.at("last_loss").is_null() ? NAN : progress.at("last_loss").get<double>();
  context_.tokenizer.merge(model::read_tokenizer_files(checkpoint));
  if (!progress.at("best_loss").is_null()) best_loss_ = progress.at("best_loss").get<double>();
  best_step_ = progress.at("best_step");
  // Runs of earlier versions have none.
  if (progress.contains("val_accuracy") && progress.at("val_accuracy").is_number())
    accuracy_ = progress.at("val_accuracy");
  if (!workers_.first()) return;
  cut_metrics(context_.out, step_);
  mark(context_.out, step_, best_step_);  // a kill may have come before the links
}

void Trainer::set_rates() {
  auto& groups = optimizer_->groups();
  for (size_t i = 0; i < groups.size(); ++i)
    groups[i].rate = rate_at(step_, i < kSsmGroups ? recipe_.ssm_lr : recipe_.lr, recipe_);
}

StepReport Trainer::step() {
  for (const auto& [name, tensor] : model_.parameters())
    at::Tensor(tensor).mutable_grad() = at::Tensor();
  const int64_t sequences = plan_.num_sequences / workers_.count();
  std::vector<data::Batch> batches;
  double num_scored = 0;
  for (int64_t m = 0; m < plan_.num_micro; ++m) {
    const int64_t first = workers_.rank() * sequences + m * recipe_.micro_batch;
    {
      const Stopwatch reading(overhead_.reading);
      batches.push_back(source_.train(step_, first, recipe_.micro_batch));
    }
    num_scored += static_cast<double>(batches.back().num_scored);
  }
  num_scored = workers_.sum({num_scored})[0];
  const double scale = num_scored > 0 ? 1 / num_scored : 0;

  double loss = 0;
  const Segments segments{recipe_.segment, recipe_.bptt, recipe_.recompute,
                          cut_at(step_, recipe_, model_.config())};
  const auto states_before = states_;
  for (int64_t m = 0; m < plan_.num_micro; ++m) {
    if (m > 0 && is_stop_asked()) {
      states_ = states_before;
      return {.abandoned = true};
    }
    if (m > 0) show_line(m);
    if (m + 1 == plan_.num_micro) buckets_->arm();
    nn::State state = states_.empty() ? nn::State() : states_[m];
    loss += backward(trained_, batches[m], segments, scale, state);
    if (!states_.empty()) states_[m] = state;
    last_state_ = std::move(state);
  }
  buckets_->finish();
  StepReport report{.loss = workers_.sum({loss})[0]};

  set_rates();
  // The same on every worker: loss and gradients are sums over all of them.
  if (std::isfinite(report.loss)) {
    report.grad_norm = optimizer_->step(recipe_.clip);
    const auto& norms = optimizer_->group_norms();
    report.grad_norm_ssm = norm_of(norms[0], norms[1]);
    report.grad_norm_rest = norm_of(norms[2], norms[3]);
  }
  report.skipped = !std::isfinite(report.grad_norm);
  num_skipped_ += report.skipped;
  skipped_in_a_row_ = report.skipped ? skipped_in_a_row_ + 1 : 0;
  // What is not finite would live on in the carried memories: the sequences start afresh.
  if (report.skipped) std::ranges::fill(states_, nn::State());
  last_loss_ = report.loss;
  ++step_;
  return report;
}

eval::Score Trainer::validate() const {
  eval::Score total;
  const auto reader = nn::make_language_model(model_);
  const int64_t sequences = source_.num_validation_sequences();
  int64_t turn = 0;
  for (int64_t i = 0; i < sequences; i += recipe_.micro_batch, ++turn)
    if (turn % workers_.count() == workers_.rank())
      total += eval::evaluate(*reader,
                              source_.validation(i, std::min(recipe_.micro_batch, sequences - i)));
  std::vector<double> parts = {total.nats, static_cast<double>(total.num_scored),
                               static_cast<double>(total.num_right)};
  // A worker without a turn has counted nothing, not even layers.
  if (source_.is_task()) total.num_held.resize(eval::eidetic_layers(model_.config()).size());
  parts.insert(parts.end(), total.num_held.begin(), total.num_held.end());
  const auto sums = workers_.sum(parts);
  return {sums[0], static_cast<int64_t>(sums[1]), static_cast<int64_t>(sums[2]),
          std::vector<int64_t>(sums.begin() + 3, sums.end())};
}

void Trainer::save() {
  const Stopwatch saving(overhead_.saving);
  const auto metrics = context_.out / kMetricsFile;
  if (workers_.first() && std::filesystem::exists(metrics)) base::sync_path(metrics);
  train::save(context_.out, step_, snapshot(), workers_);
  if (workers_.first()) {
    mark(context_.out, step_, best_step_);
    // What made a step fail may lie in the weights already: those from before stay.
    if (skipped_in_a_row_ == 0) prune(context_.out, recipe_.keep);
  }
  saved_step_ = step_;
  saved_at_ = now();
}

bool Trainer::validate_now() {
  validation_ = validate();
  accuracy_ = validation_->accuracy();
  const double loss = validation_->loss();
  if (!std::isfinite(loss) || (best_loss_ && loss >= *best_loss_)) return false;
  best_loss_ = loss;
  best_step_ = step_;
  return true;
}

// Steps are counted alike on all workers, minutes are not: the first one's clock decides.
bool Trainer::is_save_due() const {
  if (save_every_.steps > 0) return step_ % save_every_.steps == 0;
  return workers_.max(workers_.first() && now() - saved_at_ > 60 * save_every_.minutes) > 0;
}

// A decision of one worker alone would leave the others waiting.
bool Trainer::is_stop_asked() const {
  return workers_.max(context_.stop_asked && context_.stop_asked()) > 0;
}

bool Trainer::is_good_enough() const {
  return recipe_.stop_accuracy > 0 && accuracy_ >= recipe_.stop_accuracy;
}

Ending Trainer::run() {
  const double deadline = recipe_.max_minutes > 0 ? now() + 60 * recipe_.max_minutes
                                                  : std::numeric_limits<double>::max();
  auto ending = Ending::done;
  const double began = step_done_at_ = now();
  while (step_ < plan_.num_steps && ending == Ending::done && !is_good_enough()) {
    const double start = now();
    const auto report = step();
    if (report.abandoned) {
      if (step_ != saved_step_) save();
      ending = Ending::interrupted;
      break;
    }
    tokens_per_second_ = static_cast<double>(plan_.tokens_per_step()) / (now() - start);
    validation_.reset();
    bool last = step_ == plan_.num_steps;
    const bool validates = source_.num_validation_sequences() > 0 && recipe_.eval_every > 0 &&
                           (step_ % recipe_.eval_every == 0 || last);
    const bool is_best = validates && validate_now();
    last = last || is_good_enough();
    step_done_at_ = now();
    pace_ = (step_done_at_ - began) / static_cast<double>(step_ - first_step_);
    {
      const Stopwatch logging(overhead_.logging);
      log(report);
      show(report);
    }
    if (!report.skipped && recipe_.sample_every > 0 && step_ % recipe_.sample_every == 0)
      show_sample();
    if (skipped_in_a_row_ >= recipe_.max_skips) throw base::RunError(not_finite_text());
    if (is_stop_asked())
      ending = Ending::interrupted;
    else if (workers_.max(now() > deadline) > 0)
      ending = Ending::out_of_time;
    const bool is_due = skipped_in_a_row_ == 0 && is_save_due();
    if (last || is_best || ending != Ending::done || is_due) save();
  }
  line_.clear();
  if (ending != Ending::interrupted && step_ > 0 && num_skipped_ == step_)
    throw base::RunError(not_finite_text());
  return ending;
}

// --resume would end the same way. Where no step has changed a weight, rates are not the cause.
std::string Trainer::not_finite_text() const {
  if (num_skipped_ == step_)
    return fmt::format(
        "train: all {} steps were skipped, no loss or gradient was finite; start anew in another "
        "--out from other weights or with another config",
        step_);
  const auto before = newest_step_name(context_.out, step_ - skipped_in_a_row_);
  const auto from = before == "none" ? "anew" : "from the last checkpoint before them, " + before;
  return fmt::format(
      "train: {} steps in a row had a loss or gradient that was not finite, stopped at step {}; "
      "start {}{}, in another --out with a lower --lr and --ssm-lr",
      skipped_in_a_row_, step_, from, before == "none" ? "" : ", by --init-from");
}

void Trainer::log(const StepReport& report) {
  if (!workers_.first()) return;
  const auto number = [](double x) { return std::isfinite(x) ? base::Json(x) : base::Json(); };
  const auto& groups = optimizer_->groups();
  base::Json line = {{"step", step_},
                     {"tokens", step_ * plan_.tokens_per_step()},
                     {"loss", number(report.loss)},
                     {"lr", groups[kSsmGroups].rate},
                     {"ssm_lr", groups[0].rate},
                     {"grad_norm", number(report.grad_norm)},
                     {"grad_norm_ssm", number(report.grad_norm_ssm)},
                     {"grad_norm_rest", number(report.grad_norm_rest)},
                     {"tokens_per_s", tokens_per_second_},
                     {"seconds", seconds_before_ + seconds_running()},
                     {"read_seconds", overhead_.reading - logged_.reading},
                     {"log_seconds", overhead_.logging - logged_.logging},
                     {"save_seconds", overhead_.saving - logged_.saving},
                     {"skipped", num_skipped_}};
  if (validation_) {
    line["val_loss"] = number(validation_->loss());
    if (source_.is_task()) line["val_accuracy"] = validation_->accuracy();
    if (!validation_->num_held.empty()) line["val_held"] = validation_->held();
    if (is_good_enough() && step_ < plan_.num_steps) line["stopped"] = true;
  }
  if (step_ % kMemoriesEvery == 0 || step_ == 1)
    if (auto held = memories(); !held.empty()) line["memories"] = std::move(held);
  logged_ = overhead_;
  base::append_text(context_.out / kMetricsFile, line.dump() + '\n');
}

// How many tokens each eidetic memory holds, how old they are and how surprising they were, over
// the sequences of the last micro-batch.
base::Json Trainer::memories() const {
  base::Json held = base::Json::array();
  const auto& cursor = last_state_.cursor.position;
  if (cursor.empty()) return held;
  const auto now_B1 = torch::tensor(cursor, at::kLong).unsqueeze(1);
  for (size_t i = 0; i < last_state_.layers.size(); ++i) {
    const auto& set = last_state_.layers[i].running;
    if (!set.position.defined() || set.position.numel() == 0) continue;
    const auto there = set.position != nn::kNowhere;
    const auto count = there.sum().item<double>();
    if (count == 0) continue;
    const auto age = at::where(there, now_B1 - set.position, 0).sum().item<double>();
    const auto innovation = at::where(there, set.innovation.detach(), 0.0).sum().item<double>();
    held.push_back({{"layer", i},
                    {"held", count / static_cast<double>(set.position.size(0))},
                    {"age", age / count},
                    {"innovation", innovation / count}});
  }
  return held;
}

void Trainer::show(const StepReport& report) {
  if (validation_) {
    auto text =
        fmt::format("step {}: validation loss {}", step_, eval::loss_text(validation_->loss()));
    if (source_.is_task())
      text += fmt::format(", accuracy {:.2f} %", 100 * validation_->accuracy());
    line_.say(text);
  }
  if (report.skipped)
    line_.say(fmt::format("step {}: loss or gradient not finite, skipped ({} in a row)", step_,
                          skipped_in_a_row_));
  show_line();
}

void Trainer::show_line(int64_t micro_batch) {
  if (!line_.is_due()) return;
  line_.show(progress_text(
      {.step = step_,
       .num_steps = plan_.num_steps,
       .micro_batch = micro_batch,
       .num_micro = plan_.num_micro,
       .is_first = step_ == first_step_,
       .loss = last_loss_,
       .tokens_per_second = tokens_per_second_,
       .seconds_left = seconds_left(plan_.num_steps - step_, pace_, now() - step_done_at_),
       .memory = base::process_memory("VmRSS")}));
}

// Text for a terminal: line breaks stay, other control characters are shown as escapes, bytes that
// are no character as U+FFFD, and ids the tokenizer does not know as numbers.
std::string Trainer::text_of(const std::vector<int64_t>& ids) const {
  if (!tokenizer_) return fmt::format("{}", fmt::join(ids, " "));
  std::string text;
  std::vector<int32_t> known;
  const auto flush = [&] {
    text += data::replace_utf8_faults(tokenizer_->decode(known));
    known.clear();
  };
  for (const auto id : ids) {
    if (id < tokenizer_->vocab_size()) {
      known.push_back(static_cast<int32_t>(id));
      continue;
    }
    flush();
    text += fmt::format("<{}>", id);
  }
  flush();
  std::string shown;
  for (size_t at = 0; at <= text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    shown += (at > 0 ? "\n" : "") + base::printable(text.substr(at, end - at));
    at = end + 1;
  }
  return shown;
}

void Trainer::show_sample() {
  if (!workers_.first() || context_.quiet) return;
  const auto sequence = source_.num_validation_sequences() > 0 ? source_.validation(0, 1)
                                                               : source_.train(step_, 0, 1);
  const auto first = sequence.ids.begin();
  const std::vector<int64_t> ids(first, first + std::min<int64_t>(64, sequence.length));
  const auto writer = nn::make_language_model(model_);
  eval::GenerateOptions options;
  options.max_tokens = recipe_.sample_tokens;
  options.sampling.temperature = 0.8;
  try {
    auto from = eval::begin(*writer);
    from.seed = static_cast<uint64_t>(step_);
    eval::read_prompt(*writer, ids, from);
    const auto sample = eval::generate(*writer, from, options, /*tokenizer=*/nullptr);
    line_.say(
        fmt::format("--- sample at step {}\n{}|{}\n---", step_, text_of(ids), text_of(sample.ids)));
  } catch (const base::RunError& failure) {
    line_.say(fmt::format("step {}: no sample: {}", step_, failure.what()));
  }
}

}  // namespace bmojo::train
