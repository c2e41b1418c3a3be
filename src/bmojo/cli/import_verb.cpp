#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "bmojo/base/error.h"
#include "bmojo/base/printable.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/cli/verbs.h"
#include "bmojo/data/byte_level.h"
#include "bmojo/model/gguf.h"
#include "bmojo/model/hugging_face.h"
#include "bmojo/model/tensors.h"

namespace bmojo::cli {
namespace {

struct Options {
  Common common;
  std::string source, out, dtype;
};

model::Imported import_model(const Options& options, const model::CopyProgress& progress) {
  std::optional<model::Dtype> dtype;
  if (!options.dtype.empty()) dtype = model::dtype_of(options.dtype);
  if (!model::is_gguf(options.source))
    return model::import_hugging_face(options.source, options.out, dtype, progress);
  const auto read_tokenizer = [](const std::string& json) {
    data::make_byte_level(json, data::kByteLevelFile);
  };
  return model::import_gguf(
      options.source, options.out,
      {.dtype = dtype, .progress = progress, .check_tokenizer = read_tokenizer});
}

void run_import(const Options& options) {
  base::require(options.dtype.empty() || options.dtype == "f32" || options.dtype == "bf16" ||
                    options.dtype == "f16",
                "--dtype: must be f32, bf16 or f16, got {}", base::in_quotes(options.dtype));
  defer_interrupts();
  const auto imported = [&] {
    base::Progress progress("import", "B", options.common.quiet);
    return import_model(options, [&](int64_t done, int64_t total) {
      check_interrupted();
      progress.update(done, total);
    });
  }();
  if (!imported.note.empty()) base::print_stderr(fmt::format("bmojo: {}\n", imported.note));
  const int64_t parameters = model::count_parameters(imported.config);
  if (options.common.json) {
    print_json(
        {{"out", options.out}, {"model_type", imported.model_type}, {"parameters", parameters}});
  } else {
    fmt::print("{}: {}, {} parameters\n", base::printable(options.out), imported.model_type,
               base::grouped(parameters));
  }
}

}  // namespace

void add_import_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("import", "Read a Hugging Face folder or a GGUF file");
  verb->add_option("SRC", options->source, "Folder of Mamba, Mistral or Llama, or GGUF file")
      ->type_name("")
      ->required();
  verb->add_option("--out", options->out, "Folder to write: new or empty")
      ->option_text("DIR")
      ->required();
  verb->add_option("--dtype", options->dtype,
                   "f32, bf16 or f16 (default: as stored, blocks as f32)")
      ->option_text("TYPE");
  add_common(*verb, options->common);
  verb->callback([options] { run_import(*options); });
}

}  // namespace bmojo::cli
