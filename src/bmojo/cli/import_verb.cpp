#include <fmt/format.h>

#include <memory>
#include <string>

#include "bmojo/base/printable.h"
#include "bmojo/base/progress.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/cli/verbs.h"
#include "bmojo/model/hugging_face.h"
#include "bmojo/model/tensors.h"

namespace bmojo::cli {
namespace {

struct Options {
  Common common;
  std::string source, out;
};

void run_import(const Options& options) {
  defer_interrupts();
  const auto imported = [&] {
    base::Progress progress("import", "B", options.common.quiet);
    return model::import_hugging_face(options.source, options.out,
                                      [&](int64_t done, int64_t total) {
                                        check_interrupted();
                                        progress.update(done, total);
                                      });
  }();
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
  auto* verb = app.add_subcommand("import", "Read a Hugging Face folder (Mamba, Mistral, Llama)");
  verb->add_option("SRC", options->source, "Folder with config.json and safetensors")
      ->type_name("")
      ->required();
  verb->add_option("--out", options->out, "Folder to write: new or empty")
      ->option_text("DIR")
      ->required();
  add_common(*verb, options->common);
  verb->callback([options] { run_import(*options); });
}

}  // namespace bmojo::cli
