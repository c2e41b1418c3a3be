#include <fmt/format.h>

#include <memory>
#include <string>

#include "bmojo/base/error.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/cli/verbs.h"
#include "bmojo/model/config.h"
#include "bmojo/model/tensors.h"

namespace bmojo::cli {
namespace {

struct Options {
  Common common;
  model::ModelChoice model;
  bool list = false;
};

void print_list() {
  fmt::print("{:<20}{:>16}{:>24}\n", "preset", "parameters", "without embeddings");
  for (const auto& name : model::preset_names()) {
    const auto config = model::preset(name);
    fmt::print("{:<20}{:>16}{:>24}\n", name, base::grouped(model::count_parameters(config)),
               base::grouped(model::count_parameters_without_embeddings(config)));
  }
  fmt::print("\nfields (bmojo config --preset NAME shows the values):\n");
  std::string line = " ";
  for (const auto& field : model::config_fields()) {
    if (line.size() + 1 + field.size() > 79) {
      fmt::print("{}\n", line);
      line = " ";
    }
    line += " " + field;
  }
  fmt::print("{}\n", line);
}

base::Json list_json() {
  base::Json presets = base::Json::array();
  for (const auto& name : model::preset_names()) {
    const auto config = model::preset(name);
    presets.push_back(
        {{"name", name},
         {"parameters", model::count_parameters(config)},
         {"parameters_without_embeddings", model::count_parameters_without_embeddings(config)}});
  }
  return {{"presets", presets}, {"fields", model::config_fields()}};
}

void run_config(const Options& options) {
  if (options.list) {
    base::require(!model::is_given(options.model), "--list: must stand alone, got a model as well");
    return options.common.json ? print_json(list_json()) : print_list();
  }
  const auto config = model::to_json(model::resolve(options.model));
  options.common.json ? print_json(config) : fmt::print("{}\n", config.dump(2));
}

}  // namespace

void add_config_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("config", "Print a validated config as JSON");
  verb->add_flag("--list", options->list, "List the presets and the fields");
  add_model_choice(*verb, options->model);
  add_common(*verb, options->common);
  verb->callback([options] { run_config(*options); });
}

}  // namespace bmojo::cli
