#include "bmojo/cli/sweep_check.h"

#include <fmt/format.h>

#include <cstdlib>
#include <thread>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/cli/processes.h"
#include "bmojo/model/checkpoint.h"

namespace bmojo::cli {
namespace {
namespace fs = std::filesystem;

// `FILE:LINE: …` of the run file that was checked, by the line of the sweep's own file.
std::string by_own_line(const std::string& message, const fs::path& checked, const SweepRun& run) {
  const auto start = base::shown(checked) + ":";
  if (!message.starts_with(start)) return run.name + ": " + message;
  const auto end = message.find(':', start.size());
  const auto line = std::strtoul(message.c_str() + start.size(), nullptr, 10);
  if (end == std::string::npos || line == 0 || line > run.recipe.size()) return message;
  const bool is_unknown = message.ends_with("is not known");
  return run.recipe[line - 1].where + message.substr(end) +
         (is_unknown ? "; bmojo train --help lists the fields" : "");
}

// Seeds are not looked at one by one.
void check_seed(const SweepRun& run) {
  const auto seed = run.value_of("seed");
  const bool is_number = seed.find_first_not_of("0123456789") == std::string::npos;
  base::require(is_number && seed.size() <= 18,
                "{}: seed must be a whole number of at least 0, got {}", run.name,
                base::in_quotes(seed));
}

// A folder of this name that was begun with other fields is somebody's work.
void check_folder(const SweepFolder& shop, const SweepRun& run) {
  if (!fs::exists(shop.folder(run))) return;
  base::require(
      fs::exists(shop.beside(run, ".toml")),
      "{}: must be a run of this sweep, got a folder without its .toml; take another --out",
      base::shown(shop.folder(run)));
  if (!fs::exists(shop.folder(run) / model::kLatest)) return;
  base::require(
      contents(shop.beside(run, ".toml")) == to_toml(run),
      "{}: must be a run of the same fields, got one of others; remove it or take another --out",
      base::shown(shop.folder(run)));
}

class Checks {
 public:
  Checks(const SweepFolder& shop, const std::vector<const SweepRun*>& runs, int64_t jobs)
      : shop_(shop), jobs_(static_cast<size_t>(jobs)) {
    for (const auto* run : runs) groups_[key_of(*run)].push_back(run);
  }

  RunSeconds run() {
    std::vector<std::pair<pid_t, const Group*>> active;
    auto next = groups_.begin();
    try {
      while (next != groups_.end() || !active.empty()) {
        for (; next != groups_.end() && active.size() < jobs_; ++next)
          active.emplace_back(start(next->second), &next->second);
        std::vector<std::pair<const Group*, int>> ended;
        std::erase_if(active, [&](const auto& each) {
          int code = 0;
          if (!has_ended(each.first, code)) return false;
          ended.emplace_back(each.second, code);
          return true;
        });
        for (const auto& [group, code] : ended) finish(*group, code);
        check_interrupted();
        std::this_thread::sleep_for(kLook);
      }
    } catch (...) {
      std::vector<pid_t> left;
      for (const auto& [process, group] : active) left.push_back(process);
      end_processes(left);
      throw;
    }
    return seconds_;
  }

 private:
  using Group = std::vector<const SweepRun*>;

  static std::string key_of(const SweepRun& run) {
    auto fields = to_json(run);
    fields.erase("seed");
    return fields.dump();
  }
  fs::path scratch(const Group& group, const char* ending) const {
    return shop_.scratch(group.front()->name + ending);
  }
  pid_t start(const Group& group) {
    base::write_text(scratch(group, ".toml"), to_toml(*group.front()));
    return start_process({shop_.program(), "train", "--run", scratch(group, ".toml").string(),
                          "--dry-run", "--json"},
                         scratch(group, ".out"), scratch(group, ".err"));
  }
  void finish(const Group& group, int code) {
    const auto& run = *group.front();
    if (code != 0) {
      const auto message =
          by_own_line(complaint(scratch(group, ".err"), code), scratch(group, ".toml"), run);
      if (code == 2) throw base::Error(message);
      throw base::RunError(message);
    }
    const auto plan = base::parse_json(contents(scratch(group, ".out")), run.name);
    for (const auto* each : group) seconds_[each] = plan.value("seconds", 0.0);
  }

  const SweepFolder& shop_;
  size_t jobs_;
  std::map<std::string, Group> groups_;
  RunSeconds seconds_;
};

}  // namespace

RunSeconds check_runs(const SweepFolder& shop, const std::vector<const SweepRun*>& runs,
                      int64_t jobs) {
  for (const auto* run : runs) {
    check_seed(*run);
    check_folder(shop, *run);
  }
  return Checks(shop, runs, jobs).run();
}

}  // namespace bmojo::cli
