#include "bmojo/cli/sweep_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <map>
#include <sstream>

#include "bmojo/base/digest.h"
#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/input.h"
#include "bmojo/base/printable.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/data/task.h"

namespace bmojo::cli {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kFamily = "family.";
constexpr size_t kLongestName = 120, kMostRuns = 100000;
using Items = std::vector<base::RunFileItem>;

struct Tables {
  Items base, grid, eval, stop;
  std::vector<base::RunFileTable> families;
};

Tables sorted(std::vector<base::RunFileTable> tables, const std::string& subject) {
  Tables sorted;
  for (auto& table : tables) {
    if (table.name == "base") {
      sorted.base = std::move(table.items);
    } else if (table.name == "grid") {
      sorted.grid = std::move(table.items);
    } else if (table.name == "eval") {
      sorted.eval = std::move(table.items);
    } else if (table.name == "stop") {
      sorted.stop = std::move(table.items);
    } else {
      base::require(table.name.starts_with(kFamily) && table.name.size() > kFamily.size(),
                    "{}: table must be base, family.NAME, grid, eval or stop, got {}", table.where,
                    base::in_quotes(table.name));
      table.name.erase(0, kFamily.size());
      sorted.families.push_back(std::move(table));
    }
  }
  base::require(!sorted.families.empty(), "{}: must hold a table [family.NAME], got none", subject);
  return sorted;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::string field_set_by(const std::string& setting) {
  return setting.substr(0, setting.find('='));
}

// What is said later counts. Of `set` that is each field of the model.
void add(Items& recipe, const base::RunFileItem& item) {
  const auto before = std::ranges::find(recipe, item.key, &base::RunFileItem::key);
  if (before == recipe.end()) {
    recipe.push_back(item);
  } else if (item.key == "set") {
    auto& settings = before->values;
    for (const auto& later : item.values)
      std::erase_if(settings, [&](const std::string& each) {
        return field_set_by(each) == field_set_by(later);
      });
    settings.insert(settings.end(), item.values.begin(), item.values.end());
  } else {
    *before = item;
  }
}

// One value of an axis as the field it stands for.
base::RunFileItem field_of(const base::RunFileItem& axis, const std::string& value) {
  base::RunFileItem item{axis.key, {value}, false, axis.where};
  if (axis.key == "set") item = {"set", words_of(value), true, axis.where};
  if (axis.key.starts_with("set."))
    item = {"set", {axis.key.substr(4) + "=" + value}, true, axis.where};
  return item;
}

void check_axis(const base::RunFileItem& axis) {
  base::require(axis.is_list, "{}: axis {} must be a list, got one value; write it in [base]",
                axis.where, base::in_quotes(axis.key));
  base::require(!axis.values.empty(), "{}: axis {} must hold a value, got none", axis.where,
                base::in_quotes(axis.key));
  for (auto value = axis.values.begin(); value != axis.values.end(); ++value)
    base::require(std::find(axis.values.begin(), value, *value) == value,
                  "{}: axis {} must hold each value once, got {} twice", axis.where,
                  base::in_quotes(axis.key), base::in_quotes(*value));
}

// For a folder: what a shell or a reader may stumble over is replaced.
std::string name_of(const SweepRun& run) {
  std::string name = run.family;
  for (const auto& [key, value] : run.axes) {
    name += ',';
    if (key != "set") name += (key.starts_with("set.") ? key.substr(4) : key) + '=';
    name += value;
  }
  for (auto& c : name) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       std::string_view("._=-,:").find(c) != std::string_view::npos;
    if (!plain) c = c == ' ' ? '+' : '-';
  }
  return name;
}

void name_runs(std::vector<SweepRun>& runs) {
  std::map<std::string, int> counts;
  for (const auto& run : runs) ++counts[name_of(run)];
  for (auto& run : runs) {
    run.name = name_of(run);
    const bool unclear = counts[run.name] > 1 || run.name.size() > kLongestName;
    if (unclear)
      run.name =
          run.name.substr(0, kLongestName) + '-' + base::digest_of_text(to_toml(run)).substr(9, 8);
  }
}

void check_twice(const std::vector<SweepRun>& runs, const std::string& subject) {
  std::map<std::string, const SweepRun*> seen;
  for (const auto& run : runs) {
    const auto [before, is_new] = seen.emplace(to_json(run).dump(), &run);
    base::require(is_new, "{}: a run must stand once, got {} and {} with the same fields", subject,
                  before->second->name, run.name);
  }
}

// What {name} stands for: the family, an axis, or another field of the run.
std::string value_named(const std::string& name, const SweepRun& run,
                        const base::RunFileItem& item) {
  const auto axis = std::ranges::find(run.axes, name, &std::pair<std::string, std::string>::first);
  auto value = name == "family"         ? run.family
               : axis != run.axes.end() ? axis->second
                                        : run.value_of(name);
  base::require(!value.empty() && value.find('{') == std::string::npos,
                "{}: {{…}} in {} must name family, an axis or a field of the run, got {}",
                item.where, base::in_quotes(item.key), base::in_quotes(name));
  return value;
}

// Texts may say what differs from run to run: init_from = "short/{family},seed={seed}".
void fill_in(SweepRun& run) {
  const auto unfilled = run;
  for (auto& item : run.recipe)
    for (auto& text : item.values)
      for (size_t from = 0; (from = text.find('{', from)) != std::string::npos;) {
        const auto end = text.find('}', from);
        base::require(end != std::string::npos, "{}: {{ in {} must be closed by }}, got {}",
                      item.where, base::in_quotes(item.key), base::in_quotes(text));
        const auto value = value_named(text.substr(from + 1, end - from - 1), unfilled, item);
        text.replace(from, end + 1 - from, value);
        from += value.size();
      }
}

// The product of all axes, the last one fastest but for the families: they are compared early.
std::vector<SweepRun> product(const Tables& tables, const std::string& subject) {
  size_t count = tables.families.size();
  for (const auto& axis : tables.grid) {
    check_axis(axis);
    count *= axis.values.size();
    base::require(count <= kMostRuns, "{}: must hold at most {} runs, got more", subject,
                  kMostRuns);
  }
  std::vector<SweepRun> runs;
  for (size_t i = 0; i < count; ++i) {
    SweepRun run;
    const auto& family = tables.families[i % tables.families.size()];
    run.family = family.name;
    run.recipe = {{"threads", {"1"}, false, subject}};
    for (const auto& item : tables.base) add(run.recipe, item);
    for (const auto& item : family.items) add(run.recipe, item);
    size_t stride = count;
    for (const auto& axis : tables.grid) {
      stride /= axis.values.size();
      const auto& value = axis.values[i / stride % axis.values.size()];
      run.axes.emplace_back(axis.key, value);
      add(run.recipe, field_of(axis, value));
    }
    fill_in(run);
    runs.push_back(std::move(run));
  }
  return runs;
}

void add_stop(Tables& tables) {
  for (const auto& item : tables.stop) {
    base::require(item.key == "accuracy" && !item.is_list,
                  "{}: [stop] must hold accuracy = a number, got {}", item.where,
                  base::in_quotes(item.key));
    add(tables.base, {"stop_accuracy", item.values, false, item.where});
  }
}

int64_t whole_number(const base::RunFileItem& item) {
  const auto& text = item.values.empty() ? item.key : item.values.front();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  base::require(
      !item.is_list && error == std::errc() && end == text.data() + text.size() && value >= 1,
      "{}: key {} must be a whole number of at least 1, got {}", item.where,
      base::in_quotes(item.key), item.is_list ? "a list" : base::in_quotes(text));
  return value;
}

// Each task, with the memories as trained and then with each other setting.
void read_evals(const Items& items, Sweep& sweep) {
  constexpr std::array kKeys = {"sequences", "tasks", "data", "set"};
  std::vector<SweepEval> asked = {{}}, texts;
  std::vector<std::vector<std::string>> settings = {{}};
  for (const auto& item : items) {
    base::require(std::ranges::find(kKeys, item.key) != kKeys.end(),
                  "{}: key of [eval] must be one of {}, got {}", item.where, fmt::join(kKeys, ", "),
                  base::in_quotes(item.key));
    if (item.key == "sequences") {
      sweep.sequences = whole_number(item);
      continue;
    }
    base::require(item.is_list && !item.values.empty(),
                  "{}: key {} must be a list with a value, got {}", item.where,
                  base::in_quotes(item.key), item.is_list ? "none" : "no list");
    if (item.key == "tasks") {
      asked.clear();
      for (const auto& task : item.values) asked.push_back({data::parse_task(task).text, {}, {}});
    } else if (item.key == "data") {
      texts.push_back({{}, item.values, {}});
    } else {
      for (const auto& text : item.values) settings.push_back(words_of(text));
    }
  }
  asked.insert(asked.end(), texts.begin(), texts.end());
  for (const auto& eval : asked)
    for (const auto& setting : settings) sweep.evals.push_back({eval.task, eval.data, setting});
}

// What eval would refuse after hours of training.
void check_evals(const Sweep& sweep, const SweepRun& run) {
  const auto task = run.value_of("task"), name = run.value_of("preset");
  const auto set = std::ranges::find(run.recipe, "set", &base::RunFileItem::key);
  for (const auto& eval : sweep.evals) {
    if (!task.empty() && !eval.task.empty()) {
      const auto wanted = data::parse_task(task).vocab_size,
                 got = data::parse_task(eval.task).vocab_size;
      base::require(wanted == got,
                    "[eval]: task must have the vocabulary trained on = {}, got {} in {}", wanted,
                    got, eval.task);
    }
    if (name.empty() || eval.set.empty()) continue;
    auto config = model::resolve(model::ModelChoice{
        name, "", set == run.recipe.end() ? std::vector<std::string>() : set->values});
    model::apply_memory_settings(config, eval.set);
  }
}

}  // namespace

std::string SweepRun::value_of(std::string_view key) const {
  const auto item = std::ranges::find(recipe, key, &base::RunFileItem::key);
  return item == recipe.end() || item->values.empty() ? "" : item->values.front();
}

Sweep load_sweep(const fs::path& path) {
  const auto subject = base::shown(path);
  auto tables = sorted(base::parse_tables(base::read_text(path), subject), subject);
  add_stop(tables);
  Sweep sweep;
  sweep.runs = product(tables, subject);
  name_runs(sweep.runs);
  check_twice(sweep.runs, subject);
  read_evals(tables.eval, sweep);
  for (const auto& run : sweep.runs) {
    try {
      check_evals(sweep, run);
    } catch (const base::Error& mistake) {
      base::fail("{}: {}: {}", subject, run.name, mistake.what());
    }
  }
  return sweep;
}

std::string to_toml(const SweepRun& run) {
  std::string text;
  for (const auto& item : run.recipe) {
    std::vector<std::string> values;
    for (const auto& value : item.values) values.push_back(base::toml_text(value));
    const auto list = fmt::format("{}", fmt::join(values, ", "));
    text +=
        fmt::format("{} = {}\n", base::toml_text(item.key), item.is_list ? "[" + list + "]" : list);
  }
  return text;
}

base::Json json_of_word(const std::string& word) {
  const auto json = base::Json::parse(word, nullptr, /*allow_exceptions=*/false);
  return json.is_number() || json.is_boolean() ? json : base::Json(word);
}

base::Json to_json(const SweepRun& run) {
  base::Json fields = base::Json::object();
  for (const auto& item : run.recipe)
    fields[item.key] = item.is_list ? base::Json(item.values) : json_of_word(item.values.front());
  return fields;
}

std::vector<SweepEval> evals_of(const Sweep& sweep, const SweepRun& run) {
  std::vector<SweepEval> evals;
  for (auto eval : sweep.evals) {
    if (eval.task.empty() && eval.data.empty()) eval.task = run.value_of("task");
    // Text has no held-out part that eval could be asked: its validations are in the curve.
    if (!eval.task.empty() || !eval.data.empty()) evals.push_back(std::move(eval));
  }
  return evals;
}

base::Json to_json(const Sweep& sweep, const std::vector<SweepEval>& evals) {
  base::Json list = base::Json::array();
  for (const auto& eval : evals) {
    base::Json asked = base::Json::object();
    if (eval.data.empty()) {
      asked["task"] = eval.task;
      asked["sequences"] = sweep.sequences;
    } else {
      asked["data"] = eval.data;
    }
    asked["set"] = eval.set;
    list.push_back(std::move(asked));
  }
  return list;
}

}  // namespace bmojo::cli
