#include <fmt/format.h>

#include <memory>
#include <string>

#include "bmojo/base/error.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/cli/verbs.h"
#include "bmojo/model/config.h"
#include "bmojo/model/tensors.h"

namespace bmojo {
namespace {

struct Options {
  Common common;
  ModelChoice model;
  bool list = false;
};

void print_list() {
  fmt::print("{:<20}{:>16}{:>24}\n", "preset", "parameters", "without embeddings");
  for (const auto& name : preset_names()) {
    const auto config = preset(name);
    fmt::print("{:<20}{:>16}{:>24}\n", name, grouped(count_parameters(config)),
               grouped(count_parameters_without_embeddings(config)));
  }
  fmt::print("\nfields (bmojo config --preset NAME shows the values):\n");
  std::string line = " ";
  for (const auto& field : config_fields()) {
    if (line.size() + 1 + field.size() > 79) {
      fmt::print("{}\n", line);
      line = " ";
    }
    line += " " + field;
  }
  fmt::print("{}\n", line);
}

Json list_json() {
  Json presets = Json::array();
  for (const auto& name : preset_names()) {
    const auto config = preset(name);
    presets.push_back(
        {{"name", name},
         {"parameters", count_parameters(config)},
         {"parameters_without_embeddings", count_parameters_without_embeddings(config)}});
  }
  return {{"presets", presets}, {"fields", config_fields()}};
}

void run_config(const Options& options) {
  if (options.list) {
    require(!is_given(options.model), "--list: must stand alone, got a model as well");
    return options.common.json ? print_json(list_json()) : print_list();
  }
  const auto config = to_json(resolve(options.model));
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

}  // namespace bmojo
