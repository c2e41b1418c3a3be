#include "bmojo/model/choice.h"

#include <algorithm>
#include <array>
#include <set>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"
#include "bmojo/model/checkpoint.h"

namespace bmojo::model {

static constexpr std::array kMemoryFields = {"eidetic_tokens", "fading_tokens", "window"};

bool is_given(const ModelChoice& choice) {
  return !choice.preset.empty() || !choice.config.empty() || !choice.set.empty();
}

void require_set_once(const std::vector<std::string>& settings) {
  std::set<std::string> seen;
  for (const auto& assignment : settings) {
    const auto key = assignment.substr(0, assignment.find('='));
    base::require(seen.insert(key).second, "--set: {} must be set once, got it twice",
                  base::in_quotes(key));
  }
}

Config resolve(const ModelChoice& choice) {
  base::require(choice.preset.empty() || choice.config.empty(),
                "--preset and --config: must be one of them, got both");
  base::require(
      !choice.preset.empty() || !choice.config.empty(),
      "--preset or --config: one is needed, got neither; bmojo config --list names presets");
  Config config = choice.preset.empty() ? load_config(choice.config) : preset(choice.preset);
  for (const auto& assignment : choice.set) set_field(config, assignment);
  validate(config);
  return config;
}

void apply_memory_settings(Config& config, const std::vector<std::string>& settings) {
  for (const auto& assignment : settings) {
    const auto key = assignment.substr(0, assignment.find('='));
    base::require(std::ranges::find(kMemoryFields, key) != kMemoryFields.end(),
                  "--set: must be one of {} for given weights, got {}",
                  fmt::join(kMemoryFields, ", "), base::in_quotes(key));
    set_field(config, assignment);
  }
  validate(config);
}

}  // namespace bmojo::model
