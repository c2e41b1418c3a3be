#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/cli/verbs.h"
#include "bmojo/model/init.h"
#include "bmojo/model/tensors.h"

namespace bmojo::cli {
namespace {
namespace fs = std::filesystem;

struct Options {
  Common common;
  model::ModelChoice model;
  std::string out;
};

// Found out here and not after the disk has been filled.
void check_free_space(const fs::path& out, int64_t bytes) {
  std::error_code unknown;
  const auto space = fs::space(base::absolute_path(out).parent_path(), unknown);
  if (unknown || static_cast<double>(space.available) >= static_cast<double>(bytes)) return;
  throw base::RunError(fmt::format("{}: needs {} of free disk, got {}", out.string(),
                                   base::si(static_cast<double>(bytes), "B"),
                                   base::si(static_cast<double>(space.available), "B")));
}

void run_init(const Options& options) {
  const auto config = model::resolve(options.model);
  const int64_t parameters = model::count_parameters(config);
  constexpr int64_t kFloat = sizeof(float);
  const int64_t bytes = kFloat * std::min(parameters, INT64_MAX / kFloat);
  check_free_space(options.out, bytes);

  defer_interrupts();
  {
    base::Progress progress("init", "B", options.common.quiet);
    model::write_fresh_checkpoint(config, static_cast<uint64_t>(options.common.seed), options.out,
                                  [&](int64_t written) {
                                    check_interrupted();
                                    progress.update(written * kFloat, bytes);
                                  });
  }
  if (options.common.json) {
    print_json({{"out", options.out}, {"parameters", parameters}, {"seed", options.common.seed}});
  } else {
    fmt::print("{}: {} parameters, seed {}\n", options.out, base::grouped(parameters),
               options.common.seed);
  }
}

}  // namespace

void add_init_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("init", "Write a fresh checkpoint");
  add_model_choice(*verb, options->model);
  verb->add_option("--out", options->out, "Folder to write: new or empty")
      ->option_text("DIR")
      ->required();
  add_common(*verb, options->common);
  verb->callback([options] { run_init(*options); });
}

}  // namespace bmojo::cli
