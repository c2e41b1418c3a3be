#include <fmt/format.h>

#include <memory>
#include <string>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"
#include "bmojo/base/progress.h"
#include "bmojo/base/thread_pool.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/cli/verbs.h"
#include "bmojo/infer/packed_folder.h"
#include "bmojo/kernels/cpu.h"
#include "bmojo/model/checkpoint.h"
#include "bmojo/model/hugging_face.h"

namespace bmojo::cli {
namespace {

struct Options {
  Common common;
  std::string folder, out, dtype;
  bool packed = false;
};

void print_export(const Options& options, std::string_view model_type, std::string_view dtype,
                  std::string_view what) {
  if (options.common.json)
    return print_json({{"out", options.out}, {"model_type", model_type}, {"dtype", dtype}});
  fmt::print("{}: {}, {}\n", base::printable(options.out), dtype, what);
}

void export_packed(const Options& options) {
  base::require(options.dtype != "f16", "--dtype: must be f32 or bf16 with --packed, got 'f16'");
  kernels::require_simd();
  base::ThreadPool pool(base::threads_of(static_cast<int>(options.common.threads)));
  base::Progress progress("export", "arrays", options.common.quiet);
  const auto packed = infer::write_packed_folder(
      model::checkpoint_folder(options.folder), options.out, kernels::weight_type_of(options.dtype),
      kernels::ParallelFor(pool), [&](int64_t done, int64_t total) {
        check_interrupted();
        progress.update(done, total);
      });
  print_export(options, "bmojo", kernels::name_of(packed), "packed for the engine");
}

void export_plain(const Options& options) {
  const std::string dtype = options.dtype.empty() ? "f32" : options.dtype;
  const auto model_type = [&] {
    base::Progress progress("export", "B", options.common.quiet);
    return model::export_checkpoint(model::checkpoint_folder(options.folder), options.out,
                                    model::dtype_of(dtype), [&](int64_t done, int64_t total) {
                                      check_interrupted();
                                      progress.update(done, total);
                                    });
  }();
  print_export(options, model_type, dtype,
               model_type == "bmojo" ? "native (no Hugging Face model is exactly this config)"
                                     : fmt::format("Hugging Face {}", model_type));
}

void run_export(const Options& options) {
  base::require(options.dtype.empty() || options.dtype == "f32" || options.dtype == "bf16" ||
                    options.dtype == "f16",
                "--dtype: must be f32, bf16 or f16, got {}", base::in_quotes(options.dtype));
  defer_interrupts();
  options.packed ? export_packed(options) : export_plain(options);
}

}  // namespace

void add_export_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb =
      app.add_subcommand("export", "Write a folder for transformers, or one for the engine");
  verb->add_option("DIR", options->folder, "Checkpoint folder to read, or a run's")
      ->type_name("")
      ->required();
  verb->add_option("--out", options->out, "Folder to write: new or empty")
      ->option_text("DST")
      ->required();
  verb->add_option("--dtype", options->dtype,
                   "f32 (default), bf16 or f16; --packed: the file's own")
      ->option_text("TYPE");
  verb->add_flag("--packed", options->packed, "Laid out for the engine, which then starts at once");
  add_common(*verb, options->common);
  verb->callback([options] { run_export(*options); });
}

}  // namespace bmojo::cli
