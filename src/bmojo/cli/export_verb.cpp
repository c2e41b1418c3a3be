#include <fmt/format.h>

#include <memory>
#include <string>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/cli/verbs.h"
#include "bmojo/model/checkpoint.h"
#include "bmojo/model/hugging_face.h"

namespace bmojo {
namespace {

struct Options {
  Common common;
  std::string folder, out, dtype = "f32";
};

void run_export(const Options& options) {
  require(options.dtype == "f32" || options.dtype == "bf16" || options.dtype == "f16",
          "--dtype: must be f32, bf16 or f16, got {}", in_quotes(options.dtype));
  defer_interrupts();
  const auto model_type = [&] {
    Progress progress("export", "B", options.common.quiet);
    return export_checkpoint(checkpoint_folder(options.folder), options.out,
                             dtype_of(options.dtype), [&](int64_t done, int64_t total) {
                               check_interrupted();
                               progress.update(done, total);
                             });
  }();
  if (options.common.json) {
    print_json({{"out", options.out}, {"model_type", model_type}, {"dtype", options.dtype}});
  } else {
    fmt::print("{}: {}, {}\n", printable(options.out), options.dtype,
               model_type == "bmojo" ? "native (no Hugging Face model is exactly this config)"
                                     : fmt::format("Hugging Face {}", model_type));
  }
}

}  // namespace

void add_export_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("export", "Write a folder that transformers can load");
  verb->add_option("DIR", options->folder, "Checkpoint folder to read, or a run's")
      ->type_name("")
      ->required();
  verb->add_option("--out", options->out, "Folder to write: new or empty")
      ->option_text("DST")
      ->required();
  verb->add_option("--dtype", options->dtype, "f32 (default), bf16 or f16")->option_text("TYPE");
  add_common(*verb, options->common);
  verb->callback([options] { run_export(*options); });
}

}  // namespace bmojo
