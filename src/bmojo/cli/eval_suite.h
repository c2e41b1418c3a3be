#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "bmojo/cli/engine.h"

namespace bmojo::cli {

// `eval --suite`.
struct SuiteOptions {
  std::string name, data, items;
  int64_t limit = 0;       // items of a file, or that are made; 0 = all, or 500
  int64_t length = 0;      // tokens of a text that is made; 0 = 4096
  int64_t max_length = 0;  // tokens of a document that are read at once; 0 = all
};
void add_suite_flags(CLI::App& verb, SuiteOptions& options);
// Error where a flag of suites is given without one, or does not fit the suite.
void check_suite_flags(const SuiteOptions& options);

void eval_suite(const EngineChoice& choice, const Common& common, const SuiteOptions& options,
                int64_t batch);

}  // namespace bmojo::cli
