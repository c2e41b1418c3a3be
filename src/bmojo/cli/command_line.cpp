#include "bmojo/cli/command_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <new>
#include <string_view>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/printable.h"
#include "bmojo/base/second_signal.h"
#include "bmojo/model/checkpoint.h"
#include "bmojo_version.h"

namespace bmojo {
namespace {

constexpr int kDone = 0, kRunFailed = 1, kMistake = 2;
constexpr std::array kMemoryFields = {"eidetic_tokens", "fading_tokens", "window"};

volatile std::sig_atomic_t deferred = 0;
volatile std::sig_atomic_t received = 0;
volatile std::sig_atomic_t exit_code = 0;  // 0: 128 + the signal
SecondSignal second_signal;

// The second of a kind does not wait, and has the exit code of the first. What another process
// queues is never one: run_workers() passes on a signal that the terminal may have sent here too.
void on_signal(int signal, siginfo_t* info, void*) {
  const bool is_passed_on = info->si_code == SI_QUEUE;
  if (!deferred || (!is_passed_on && second_signal.is_second(signal)))
    _exit(exit_code != 0 ? exit_code : 128 + signal);
  received = signal;
}

void install_signals() {
  watch_mapped_files();
  struct sigaction action{};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction inherited{};
    // nohup and a shell's background jobs ask for a signal to be ignored: that stays.
    sigaction(signal, nullptr, &inherited);
    if (inherited.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
  // A file-size limit or a closed pipe then fails the write with a reason, as a full disk does, and
  // what is partly written is removed.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
}

int report(std::string_view message, int code) {
  fmt::print(stderr, "bmojo: {}\n", printable(message));
  return code;
}

// `bmojo VERB`, or `bmojo` where the mistake is in the verb itself.
std::string help_hint(const CLI::App& app) {
  std::string command = "bmojo";
  for (const auto* verb : app.get_subcommands()) command += " " + verb->get_name();
  return command + " --help";
}

void build(CLI::App& app, std::initializer_list<AddVerb> verbs) {
  app.set_version_flag("--version",
                       fmt::format("bmojo {} (commit {})", BMOJO_VERSION, BMOJO_COMMIT),
                       "Print version and commit");
  app.set_help_flag("-h,--help", "Print this help");
  app.get_formatter()->column_width(26);
  app.get_formatter()->label("SUBCOMMAND", "VERB");
  app.get_formatter()->label("SUBCOMMANDS", "VERB");
  app.get_formatter()->label("OPTIONS", "flags");
  app.get_formatter()->label("REQUIRED", "(needed)");
  app.require_subcommand(0, 1);
  for (const auto add : verbs) add(app);
  for (auto* verb : app.get_subcommands({})) verb->group("Verbs");
}

bool has_verb(const CLI::App& app, std::string_view name) {
  return !app.get_subcommands([&](const CLI::App* verb) { return verb->get_name() == name; })
              .empty();
}

void dispatch(CLI::App& app, int argc, char** argv, Otherwise otherwise) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  require(argc > 1, "a verb is needed, got none; bmojo --help lists them");
  if (!first.starts_with('-') && !has_verb(app, first)) {
    if (otherwise != nullptr) otherwise(argc, argv);
    fail("verb {} is not known; bmojo --help lists them all", in_quotes(first));
  }
  app.parse(argc, argv);
  require(!app.get_subcommands().empty(), "a verb is needed, got none; bmojo --help lists them");
}

// Results count as delivered only when the last of them has left the buffer.
void flush_results() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw RunError(fmt::format("stdout: writing failed: {}", std::strerror(errno)));
}

}  // namespace

int run(int argc, char** argv, const char* program, std::initializer_list<AddVerb> verbs,
        Otherwise otherwise) {
  install_signals();
  CLI::App app("B'MOJO: language models with eidetic and fading memory", program);
  try {
    build(app, verbs);
    dispatch(app, argc, argv, otherwise);
    flush_results();
    return kDone;
  } catch (const CLI::Success& request) {
    app.exit(request);
    return std::cout.flush() ? kDone : report("stdout: writing failed", kRunFailed);
  } catch (const CLI::ParseError& mistake) {
    return report(fmt::format("{}; see {}", mistake.what(), help_hint(app)), kMistake);
  } catch (const Exit& ended) {
    return ended.code;
  } catch (const Interrupted& interrupted) {
    return report(interrupted.message, 128 + interrupted.signal);
  } catch (const Error& mistake) {
    return report(mistake.what(), kMistake);
  } catch (const std::filesystem::filesystem_error& mistake) {
    return report(fmt::format("{}: must be a usable path, got {}", mistake.path1().string(),
                              mistake.code().message()),
                  kMistake);
  } catch (const std::bad_alloc&) {
    return report("out of memory; choose a smaller model, batch or length", kRunFailed);
  } catch (const std::exception& failure) {
    return report(failure.what(), kRunFailed);
  }
}

void end_with_130() { exit_code = 130; }

void defer_interrupts() { deferred = 1; }

int interrupted_by() { return received; }

void check_interrupted() {
  if (received != 0) throw Interrupted{received};
}

void add_common(CLI::App& verb, Common& common) {
  const char* group = "Everywhere";
  verb.add_flag("--json", common.json, "Print JSON and nothing else on stdout")->group(group);
  verb.add_flag("--quiet", common.quiet, "No progress on stderr")->group(group);
  verb.add_option("--threads", common.threads, "Threads (default: all cores)")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->option_text("N")
      ->group(group);
  verb.add_option("--seed", common.seed, "Seed of what is random (default: 0)")
      ->check(CLI::Range(int64_t{0}, INT64_MAX))
      ->option_text("N")
      ->group(group);
}

void add_model_choice(CLI::App& verb, ModelChoice& choice) {
  verb.add_option("--preset", choice.preset, "A model by name: bmojo config --list")
      ->option_text("NAME");
  verb.add_option("--config", choice.config, "A config.json, or a folder with one")
      ->option_text("FILE");
  verb.add_option("--set", choice.set, "Change a field; may be repeated")
      ->option_text("key=value")
      ->allow_extra_args(false);
}

bool is_given(const ModelChoice& choice) {
  return !choice.preset.empty() || !choice.config.empty() || !choice.set.empty();
}

Config resolve(const ModelChoice& choice) {
  require(choice.preset.empty() || choice.config.empty(),
          "--preset and --config: must be one of them, got both");
  require(!choice.preset.empty() || !choice.config.empty(),
          "--preset or --config: one is needed, got neither; bmojo config --list names presets");
  Config config = choice.preset.empty() ? load_config(choice.config) : preset(choice.preset);
  for (const auto& assignment : choice.set) set_field(config, assignment);
  validate(config);
  return config;
}

void add_memory_settings(CLI::App& verb, std::vector<std::string>& settings) {
  verb.add_option("--set", settings, "eidetic_tokens, fading_tokens or window")
      ->option_text("key=value")
      ->allow_extra_args(false);
}

void apply_memory_settings(Config& config, const std::vector<std::string>& settings) {
  for (const auto& assignment : settings) {
    const auto key = assignment.substr(0, assignment.find('='));
    require(std::ranges::find(kMemoryFields, key) != kMemoryFields.end(),
            "--set: must be one of {} for given weights, got {}", fmt::join(kMemoryFields, ", "),
            in_quotes(key));
    set_field(config, assignment);
  }
  validate(config);
}

void print_json(const Json& json) {
  fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace bmojo
