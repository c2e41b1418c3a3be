#pragma once

#include <CLI/CLI.hpp>

namespace bmojo::cli {

// The torch-free verbs, one file each.
void add_bench_verb(CLI::App& app);
void add_chat_verb(CLI::App& app);
void add_config_verb(CLI::App& app);
void add_init_verb(CLI::App& app);
void add_inspect_verb(CLI::App& app);
void add_import_verb(CLI::App& app);
void add_export_verb(CLI::App& app);
void add_tokenize_verb(CLI::App& app);
void add_task_verb(CLI::App& app);
void add_plot_verb(CLI::App& app);
void add_sweep_verb(CLI::App& app);

}  // namespace bmojo::cli
