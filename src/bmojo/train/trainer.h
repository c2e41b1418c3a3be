#pragma once

#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bmojo/base/progress.h"
#include "bmojo/data/tokenizer.h"
#include "bmojo/eval/evaluate.h"
#include "bmojo/nn/adamw.h"
#include "bmojo/nn/model.h"
#include "bmojo/train/gradient_buckets.h"
#include "bmojo/train/recipe.h"
#include "bmojo/train/run_folder.h"
#include "bmojo/train/source.h"
#include "bmojo/train/workers.h"

namespace bmojo::train {

// Which weights decay: matrices and taps. Norms, biases, A_log, D and β are vectors or constants of
// a channel that nothing should pull to zero.
bool decays(const std::string& name);
// The SSM's weights have a learning rate of their own.
bool is_ssm(const std::string& name);

// What a step did.
struct StepReport {
  double loss = 0;  // mean over the scored tokens of the whole batch
  double grad_norm = NAN, grad_norm_ssm = NAN, grad_norm_rest = NAN;  // of a finite loss
  bool skipped = false;    // something was not finite: no weight has changed
  bool abandoned = false;  // a signal came in its middle: nothing of it has happened
};

// What a run does beside computing, in seconds.
struct Overhead {
  double reading = 0, logging = 0, saving = 0;  // making batches; metrics and progress; checkpoints

  double total() const { return reading + logging + saving; }
};

// Why a run ended.
enum class Ending { done, interrupted, out_of_time };

// One worker of a run.
class Trainer {
 public:
  struct RunContext {
    std::filesystem::path out;         // the run's folder; must exist
    std::function<bool()> stop_asked;  // a signal came
    bool quiet = false;
    model::TokenizerFiles tokenizer = {};  // of the weights that were given
  };
  Trainer(Recipe recipe, Plan plan, nn::Model model, Source source, Workers workers,
          RunContext context);

  // Goes on from a step of the same run.
  void resume(int64_t step);
  // To the end, or until something stops it. Saves on the way and at the end.
  Ending run();

  StepReport step();  // one optimiser step, without logging or saving
  int64_t num_steps_done() const { return step_; }
  const nn::Model& model() const { return model_; }
  std::optional<double> best_loss() const { return best_loss_; }
  double last_loss() const { return last_loss_; }
  // Since this process began: what it did beside computing, and all of it.
  const Overhead& overhead() const { return overhead_; }
  double seconds_running() const;

 private:
  void set_rates();
  void log(const StepReport& report);
  base::Json memories() const;
  void show(const StepReport& report);
  void show_line(int64_t micro_batch = 0);
  eval::Score validate() const;  // every worker its part
  bool validate_now();           // whether it is the best so far
  void show_sample();
  std::string text_of(const std::vector<int64_t>& ids) const;
  void save();
  bool is_save_due() const;
  bool is_good_enough() const;  // by the last validation
  bool is_stop_asked() const;   // of any worker
  std::string not_finite_text() const;
  Snapshot snapshot();

  Recipe recipe_;
  Plan plan_;
  nn::Model model_;
  nn::Model trained_;  // the same weights with all places of the training
  Source source_;
  Workers workers_;
  RunContext context_;
  Every save_every_;
  std::vector<std::string> names_;  // of the optimiser's parameters
  std::unique_ptr<nn::AdamW> optimizer_;
  std::unique_ptr<GradientBuckets> buckets_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::vector<nn::State> states_;  // carried, a micro-batch each; empty: nothing is
  nn::State last_state_;           // of the last micro-batch, for what the memories hold
  base::StatusLine line_;

  int64_t step_ = 0, first_step_ = 0 /* of this process */, saved_step_ = -1, num_skipped_ = 0,
          skipped_in_a_row_ = 0;
  double last_loss_ = 0, tokens_per_second_ = 0;
  std::optional<double> best_loss_;
  int64_t best_step_ = -1;
  std::optional<eval::Score> validation_;  // of this step
  double accuracy_ = 0;                    // of the last validation
  double seconds_before_ = 0;              // of the run before it was resumed
  double started_ = 0, saved_at_ = 0;
  double pace_ = 0, step_done_at_ = 0;  // of this process: seconds a step; when the last one ended
  Overhead overhead_, logged_;          // so far; by the last line of metrics
};

}  // namespace bmojo::train
