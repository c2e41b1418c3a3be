#pragma once

#include <string>
#include <vector>

#include "bmojo/model/config.h"

namespace bmojo::model {

// A model by name or by file, and changes to it.
struct ModelChoice {
  std::string preset, config;
  std::vector<std::string> set;
};

// Error where --set names a field twice: the last value would win in silence.
void require_set_once(const std::vector<std::string>& settings);
bool is_given(const ModelChoice& choice);
Config resolve(const ModelChoice& choice);  // validated

// `--set` where the weights are given: only the fields no weight depends on.
void apply_memory_settings(Config& config, const std::vector<std::string>& settings);

}  // namespace bmojo::model
