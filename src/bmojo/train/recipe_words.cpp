#include "bmojo/train/recipe_words.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <type_traits>
#include <utility>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/input.h"
#include "bmojo/base/number.h"
#include "bmojo/base/printable.h"
#include "bmojo/base/run_file.h"
#include "bmojo/data/task.h"
#include "bmojo/model/choice.h"

namespace bmojo::train {
namespace {
namespace fs = std::filesystem;

std::string replaced(std::string text, char from, char to) {
  std::ranges::replace(text, from, to);
  return text;
}

void set_value(const Field& field, const std::string& text, std::string& value) {
  base::require(!text.empty(), "{}: must hold text, got none; leave it out", flag_of(field.name));
  value = text;
}
void set_value(const Field& field, const std::string& text, std::vector<std::string>& value) {
  set_value(field, text, value.emplace_back());
}
void set_value(const Field& field, const std::string& text, bool& value) {
  base::require(text == "true" || text == "false", "{}: must be true or false, got {}",
                flag_of(field.name), base::in_quotes(text));
  value = text == "true";
}
template <typename Number>
void set_value(const Field& field, const std::string& text, Number& value) {
  using Limits = std::numeric_limits<Number>;
  constexpr Number kMost = std::is_integral_v<Number> ? Limits::max() : Number(1e30);
  const auto least = text.starts_with('-') ? Limits::lowest() : Number{0};
  value = base::parse_number(text, flag_of(field.name), least, kMost);
  // Inside, less means: chosen.
  base::require(value >= static_cast<Number>(field.least), "{}: must be at least {}, got {}{}",
                flag_of(field.name), field.least, text,
                field.least > 0 ? "; leave it out to have it chosen" : "");
}

void set_field(Recipe& recipe, const Flag& flag) {
  for_each_field(recipe, [&](const Field& field, auto& value) {
    if (field.name == flag.field) set_value(field, flag.value, value);
  });
}

std::vector<std::string> settings_of(const Flags& flags) {
  std::vector<std::string> settings;
  for (const auto& flag : flags)
    if (flag.field == "set") settings.push_back(flag.value);
  return settings;
}

Flags flags_of_item(const base::RunFileItem& item) {
  const auto kind = kind_of(item.key);
  if (kind == FieldKind::none) {
    const auto meant = replaced(item.key, '-', '_');
    base::fail("{}: key {} is not known{}", item.where, base::in_quotes(item.key),
               kind_of(meant) == FieldKind::none ? "" : "; write " + base::in_quotes(meant));
  }
  base::require(!item.is_list || kind == FieldKind::list,
                "{}: key {} must have one value, got a list", item.where,
                base::in_quotes(item.key));
  Flags flags;
  try {
    Recipe any;
    for (const auto& value : item.values) set_field(any, flags.emplace_back(Flag{item.key, value}));
  } catch (const base::Error& mistake) {
    base::fail("{}: {}", item.where, mistake.what());
  }
  return flags;
}

// A run file as the flags it stands for.
Flags flags_of_file(const fs::path& path) {
  Flags flags;
  for (const auto& item : base::parse_run_file(base::read_text(path), base::shown(path))) {
    // As earlier versions wrote it: the steps count.
    if (item.key == "tokens" && item.values == std::vector<std::string>{"0"}) continue;
    for (auto& flag : flags_of_item(item)) flags.push_back(std::move(flag));
  }
  return flags;
}

bool has(const Flags& flags, std::string_view field) {
  return std::ranges::any_of(flags, [&](const Flag& flag) { return flag.field == field; });
}

// Whether a field that is said later takes the place of another one: they say the same in two ways,
// or do not go together.
bool replaces(std::string_view later, std::string_view before) {
  using Group = std::array<std::string_view, 3>;
  constexpr std::array kGroups = {Group{"preset", "config", "init_from"}, Group{"data", "task"},
                                  Group{"val_data", "val_fraction"}, Group{"steps", "tokens"}};
  const auto holds_both = [&](const Group& group) {
    return std::ranges::count(group, later) > 0 && std::ranges::count(group, before) > 0;
  };
  return std::ranges::any_of(kGroups, holds_both) || later == before ||
         (later == "task" && (before == "val_data" || before == "val_fraction"));
}

// What is said later counts: lists are not added to, but for `set`, where that is asked for.
Flags overridden(const Flags& before, const Flags& later, bool adds_set) {
  // Fields of a model whose place given weights take do not go with them.
  const bool drops_set = has(later, "init_from") && !has(before, "init_from");
  const auto stays = [&](const Flag& flag) {
    if (flag.field == "set" && (adds_set || drops_set)) return !drops_set;
    return std::ranges::none_of(later,
                                [&](const Flag& each) { return replaces(each.field, flag.field); });
  };
  Flags flags;
  std::ranges::copy_if(before, std::back_inserter(flags), stays);
  flags.insert(flags.end(), later.begin(), later.end());
  return flags;
}

Recipe recipe_of(const Flags& flags) {
  Recipe recipe;
  for (const auto& flag : flags) set_field(recipe, flag);
  make_paths_absolute(recipe);
  if (!recipe.task.empty()) recipe.task = data::parse_task(recipe.task).text;
  return recipe;
}

}  // namespace

std::string flag_of(std::string_view field) {
  return "--" + replaced(std::string(field), '_', '-');
}
std::string field_of(std::string_view flag) {
  return replaced(std::string(flag.substr(flag.find_first_not_of('-'))), '-', '_');
}

FieldKind kind_of(std::string_view name) {
  auto kind = FieldKind::none;
  Recipe any;
  for_each_field(any, [&]<typename Value>(const Field& field, Value&) {
    if (field.name == name)
      kind = std::is_same_v<Value, std::vector<std::string>> ? FieldKind::list : FieldKind::one;
  });
  return kind;
}

Recipe load_recipe(const fs::path& run_file) { return recipe_of(flags_of_file(run_file)); }

Recipe merged_recipe(Flags flags, const fs::path& run_file, const fs::path& resumed_file) {
  model::require_set_once(settings_of(flags));
  if (!run_file.empty()) {
    const auto filed = flags_of_file(run_file);
    model::require_set_once(settings_of(filed));
    flags = overridden(filed, flags, true);
  }
  if (!resumed_file.empty()) flags = overridden(flags_of_file(resumed_file), flags, false);
  return recipe_of(flags);
}

}  // namespace bmojo::train
