#include "bmojo/cli/sweep_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "bmojo/base/error.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/cli/processes.h"
#include "bmojo/cli/sweep_board.h"
#include "bmojo/cli/sweep_result.h"
#include "bmojo/data/task.h"
#include "bmojo/memory/state_size.h"
#include "bmojo/model/checkpoint.h"
#include "bmojo/model/tensors.h"

namespace bmojo::cli {
namespace {
namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kPatience = 60s;  // for a training that is saving what it has

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr pid_t kNone = 0;

// One run: its training, then one evaluation after the other.
struct Active {
  const SweepRun* run = nullptr;
  pid_t process = kNone;
  std::vector<SweepEval> evals;
  base::Json answers = base::Json::array();
  bool trained = false;
};

class Sweeper {
 public:
  Sweeper(const SweepOptions& options, const Sweep& sweep, const SweepFolder& shop,
          const RunSeconds& seconds)
      : options_(options),
        sweep_(sweep),
        shop_(shop),
        seconds_(seconds),
        commit_(commit_of(shop)),
        board_(options.quiet) {}

  // Ends with all runs done or failed; throws Interrupted.
  void run(const std::vector<const SweepRun*>& runs) {
    waiting_ = runs;
    std::ranges::reverse(waiting_);  // the next is the last
    num_runs_ = runs.size();
    started_ = now();
    try {
      while (!waiting_.empty() || !active_.empty()) {
        check_interrupted();
        while (!waiting_.empty() && std::ssize(active_) < options_.jobs) start_next();
        std::erase_if(active_, [&](Active& each) { return look(each); });
        show();
        std::this_thread::sleep_for(kLook);
      }
    } catch (const Interrupted&) {
      end_all();
      throw Interrupted{SIGINT, fmt::format("interrupted, {} of {} runs done; the same command "
                                            "goes on",
                                            num_done_, num_runs_)};
    } catch (...) {
      end_all();
      throw;
    }
  }

  const std::vector<std::string>& failures() const { return failures_; }

 private:
  void end_all() {
    std::vector<pid_t> left;
    for (const auto& each : active_)
      if (each.process != kNone) left.push_back(each.process);
    end_processes(left);
  }

  void start_next() {
    const auto& run = *waiting_.back();
    waiting_.pop_back();
    const auto folder = shop_.folder(run);
    if (fs::exists(folder / "lock")) wait_for(folder / "lock");
    const bool goes_on = fs::exists(folder / model::kLatest);
    if (!goes_on) fs::remove_all(folder);
    base::write_text(shop_.beside(run, ".toml"), to_toml(run));
    std::vector<std::string> words = {shop_.program(), "train", "--out", folder.string(), "--json"};
    if (goes_on)
      words.emplace_back("--resume");
    else
      words.insert(words.end(), {"--run", shop_.beside(run, ".toml").string()});
    const auto log = shop_.beside(run, ".log");
    active_.push_back({&run, start_process(words, log, log), evals_of(sweep_, run)});
  }

  // A training whose sweep was killed may still be saving.
  static void wait_for(const fs::path& lock) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (true) {
      try {
        const base::LockedFile free(lock, "--out");
        return;
      } catch (const base::Error&) {
        check_interrupted();
        if (std::chrono::steady_clock::now() > deadline) throw;
        std::this_thread::sleep_for(kLook);
      }
    }
  }

  fs::path answer_file(const SweepRun& run) const { return shop_.scratch(run.name + ".eval"); }

  void start_eval(Active& active) {
    const auto& run = *active.run;
    const auto& eval = active.evals[active.answers.size()];
    std::vector<std::string> words = {
        shop_.evaluator(), "eval",    "--model",   shop_.folder(run).string(),
        "--json",          "--quiet", "--threads", run.value_of("threads")};
    if (eval.data.empty())
      words.insert(words.end(),
                   {"--task", eval.task, "--sequences", fmt::format("{}", sweep_.sequences)});
    else
      words.emplace_back("--data");
    words.insert(words.end(), eval.data.begin(), eval.data.end());
    for (const auto& field : eval.set) words.insert(words.end(), {"--set", field});
    fs::remove(answer_file(run));
    active.process = start_process(words, answer_file(run), shop_.beside(run, ".log"));
  }

  // Whether the run has come to its end.
  bool look(Active& active) {
    int code = 0;
    if (!has_ended(active.process, code)) return false;
    active.process = kNone;
    const auto& run = *active.run;
    if (code != 0) {
      failures_.push_back(
          fmt::format("{}: {}", run.name, complaint(shop_.beside(run, ".log"), code)));
      board_.say("failed  " + failures_.back());
      return true;
    }
    if (active.trained) take_answer(active);
    active.trained = true;
    if (active.answers.size() < active.evals.size()) {
      start_eval(active);
      return false;
    }
    finish(active);
    return true;
  }

  void take_answer(Active& active) {
    const auto& run = *active.run;
    const auto& eval = active.evals[active.answers.size()];
    auto answer = base::parse_json(contents(answer_file(run)), run.name);
    answer.erase("by_position");
    if (answer.contains("answers")) {
      const auto count = answer.at("answers").get<int64_t>();
      const auto right =
          std::llround(answer.at("accuracy").get<double>() * static_cast<double>(count));
      const auto [low, high] = wilson(right, count);
      answer["low"] = low;
      answer["high"] = high;
    } else {
      answer["data"] = eval.data;
    }
    auto config = model::load_config(model::checkpoint_folder(shop_.folder(run)));
    model::apply_memory_settings(config, eval.set);
    answer["set"] = eval.set;
    answer["memory_bytes"] =
        memory::memory_bytes(config, answer.value("length", int64_t{0})).total();
    active.answers.push_back(std::move(answer));
  }

  void finish(const Active& active) {
    const auto& run = *active.run;
    const auto config = model::load_config(model::checkpoint_folder(shop_.folder(run)));
    base::Json axes = base::Json::object();
    for (const auto& [key, value] : run.axes) axes[key] = json_of_word(value);
    base::Json line = {{"family", run.family},
                       {"axes", axes},
                       {"commit", commit_},
                       {"jobs", options_.jobs},
                       {"parameters", model::count_parameters(config)},
                       {"memory_bytes", memory::memory_bytes(config, task_length(run)).total()}};
    line.update(metrics_summary(shop_.folder(run)));
    line["evals"] = active.answers;
    line["recipe"] = to_json(run);
    line["asked"] = to_json(sweep_, active.evals);
    base::append_text(options_.results, line.dump() + '\n');
    ++num_done_;
    work_done_ += work_of(run);
    board_.say(fmt::format("done    {}  {}", run.name, outcome(line)));
    if (!options_.keep) remove_checkpoints(shop_.folder(run));
  }

  // What an unlimited window grows to.
  static int64_t task_length(const SweepRun& run) {
    const auto task = run.value_of("task");
    return task.empty() ? 0 : data::parse_task(task).length;
  }

  static std::string outcome(const base::Json& line) {
    auto text = fmt::format("step {}, {}", line.at("steps").get<int64_t>(),
                            base::clock_text(line.at("seconds").get<double>()));
    if (line.at("stopped_early").get<bool>()) text += ", stopped early";
    for (const auto& eval : line.at("evals"))
      text += eval.contains("accuracy")
                  ? fmt::format(", {:.2f} % right", 100 * eval.at("accuracy").get<double>())
                  : fmt::format(", loss {:.4f}", eval.at("loss").get<double>());
    return text;
  }

  // The metrics stay: bmojo plot draws them.
  static void remove_checkpoints(const fs::path& folder) {
    fs::remove(folder / model::kLatest);
    std::vector<fs::path> steps;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const auto name = entry.path().filename().string();
      if (name == "best" || name.starts_with("step-")) steps.push_back(entry.path());
    }
    for (const auto& step : steps) fs::remove_all(step);
  }

  // In seconds where they are known; else all runs count alike.
  double work_of(const SweepRun& run) const {
    const double seconds = seconds_.at(&run);
    return seconds > 0 ? seconds : 1;
  }

  void show() {
    if (now() < next_show_) return;
    next_show_ = now() + 0.5;
    double done = work_done_, total = work_done_;
    std::vector<std::string> lines(1);
    for (const auto* run : waiting_) total += work_of(*run);
    for (const auto& active : active_) {
      const auto& run = *active.run;
      const auto last = active.trained ? base::Json() : last_metrics(shop_.folder(run));
      const auto step = last.is_null() ? 0 : last.value("step", int64_t{0});
      const auto steps = std::atoll(run.value_of("steps").c_str());
      const double part = active.trained ? 1
                          : steps > 0    ? static_cast<double>(step) / static_cast<double>(steps)
                                         : 0;
      total += work_of(run);
      done += part * work_of(run);
      auto text = active.trained
                      ? fmt::format("eval {}/{}", active.answers.size() + 1, active.evals.size())
                      : fmt::format("step {}", step);
      if (!active.trained && steps > 0) text += fmt::format("/{}", steps);
      if (last.is_object() && last.contains("loss") && last.at("loss").is_number())
        text += fmt::format("  loss {:.4f}", last.at("loss").get<double>());
      lines.push_back(fmt::format("  {:<18}  {}", text, run.name));
    }
    lines[0] = fmt::format("{} of {} runs done, {} running", num_done_ + failures_.size(),
                           num_runs_, active_.size());
    if (done > 0.02 * total)
      lines[0] += fmt::format(", about {} left",
                              base::clock_text((now() - started_) / done * (total - done)));
    board_.show(lines);
  }

  const SweepOptions& options_;
  const Sweep& sweep_;
  const SweepFolder& shop_;
  const RunSeconds& seconds_;
  std::string commit_;
  Board board_;
  std::vector<const SweepRun*> waiting_;
  std::vector<Active> active_;
  std::vector<std::string> failures_;
  size_t num_done_ = 0, num_runs_ = 0;
  double started_ = 0, next_show_ = 0, work_done_ = 0;
};

}  // namespace

std::vector<std::string> run_all(const Sweep& sweep, const std::vector<const SweepRun*>& runs,
                                 const SweepFolder& shop, const RunSeconds& seconds,
                                 const SweepOptions& options) {
  Sweeper sweeper(options, sweep, shop, seconds);
  sweeper.run(runs);
  return sweeper.failures();
}

}  // namespace bmojo::cli
