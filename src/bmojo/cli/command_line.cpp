#include "bmojo/cli/command_line.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
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
#include <system_error>
#include <tuple>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/nearest.h"
#include "bmojo/base/printable.h"
#include "bmojo/base/progress.h"
#include "bmojo/base/second_signal.h"
#include "bmojo/model/checkpoint.h"
#include "bmojo_version.h"

namespace bmojo::cli {
namespace {

constexpr int kDone = 0, kRunFailed = 1, kMistake = 2, kNobodyReads = 128 + SIGPIPE;

volatile std::sig_atomic_t deferred = 0;
volatile std::sig_atomic_t received = 0;
volatile std::sig_atomic_t exit_code = 0;  // 0: 128 + the signal
base::SecondSignal second_signal;

// The second of a kind does not wait, and has the exit code of the first. What another process
// queues is never one: run_workers() passes on a signal that the terminal may have sent here too.
void on_signal(int signal, siginfo_t* info, void*) {
  const bool is_passed_on = info->si_code == SI_QUEUE;
  if (!deferred || (!is_passed_on && second_signal.is_second(signal)))
    _exit(exit_code != 0 ? exit_code : 128 + signal);
  received = signal;
}

void install_signals() {
  base::watch_mapped_files();
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
  base::print_stderr(fmt::format("bmojo: {}\n", base::printable(message)));
  return code;
}

// After a failure: whether it was that the reader of stdout has gone.
bool nobody_reads() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  return std::ferror(stdout) != 0 && ::poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

int report_failure(std::string_view message) {
  return nobody_reads() ? kNobodyReads : report(message, kRunFailed);
}

// Where one is closed, a file that is opened for work would take its place, and what is printed
// would be written into it. Here it is opened the wrong way round, so that its use still fails.
void fill_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(descriptor, F_GETFD) < 0)
      ::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

// Libraries ask for the current folder as they start, and complain in their own words.
void check_current_folder() {
  std::error_code error;
  std::ignore = std::filesystem::current_path(error);
  base::require(!error, "{}", kNoCurrentFolder);
}

// `bmojo VERB`, or `bmojo` where the mistake is in the verb itself.
std::string help_hint(const CLI::App& app) {
  std::string command = "bmojo";
  for (const auto* verb : app.get_subcommands()) command += " " + verb->get_name();
  return command + " --help";
}

std::vector<std::string> names_of(const std::vector<CLI::App*>& verbs) {
  std::vector<std::string> names;
  for (const auto* verb : verbs) names.push_back(verb->get_name());
  return names;
}

std::vector<std::string> flags_of(const CLI::App& verb) {
  std::vector<std::string> flags;
  for (const auto* option : verb.get_options())
    for (const auto& name : option->get_lnames()) flags.push_back(name);
  return flags;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& names,
                         std::string_view dashes = "") {
  const auto meant = base::nearest(word, names);
  return meant.empty() ? "" : fmt::format("did you mean {}{}? ", dashes, meant);
}

// The library's words for a flag without its value and for one with several, in ours.
std::string explain_count(const CLI::App& verb, const std::string& message) {
  for (const auto* option : verb.get_options()) {
    const auto name = option->get_name();
    if (!message.starts_with(name + ": ")) continue;
    return option->count() > 1
               ? fmt::format("{}: must be given once, got it {} times", name, option->count())
               : fmt::format("{}: must have a value, got none", name);
  }
  return message;
}

// What is not known goes first: a flag that is needed and misspelt is not missing.
std::string explain(const CLI::App& app, const CLI::ParseError& mistake) {
  const auto given = app.get_subcommands();
  const CLI::App& verb = given.empty() ? app : *given.front();
  const auto see = "see " + help_hint(app);
  if (const auto rest = app.remaining(/*recurse=*/true); !rest.empty()) {
    const auto word = rest.front().substr(0, rest.front().find('='));
    if (!word.starts_with('-'))
      return fmt::format("{}: unexpected argument; {}", base::in_quotes(word), see);
    const auto bare = word.substr(std::min(word.find_first_not_of('-'), word.size()));
    return fmt::format("{}: unknown flag; {}{}", word, did_you_mean(bare, flags_of(verb), "--"),
                       see);
  }
  const std::string message = mistake.what();
  const bool is_count = dynamic_cast<const CLI::ArgumentMismatch*>(&mistake) != nullptr;
  return fmt::format("{}; {}", is_count ? explain_count(verb, message) : message, see);
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

void dispatch(CLI::App& app, int argc, char** argv, const Elsewhere& elsewhere) {
  const std::string first = argc > 1 ? argv[1] : "";
  base::require(argc > 1, "a verb is needed, got none; bmojo --help lists them");
  const std::span arguments(argv + 1, static_cast<size_t>(argc - 1));
  if (std::ranges::find(elsewhere.verbs, first) != elsewhere.verbs.end() ||
      (elsewhere.takes != nullptr && elsewhere.takes(arguments)))
    elsewhere.run(argv);
  if (!first.starts_with('-') && !has_verb(app, first)) {
    auto verbs = names_of(app.get_subcommands({}));
    verbs.insert(verbs.end(), elsewhere.verbs.begin(), elsewhere.verbs.end());
    base::fail("{}: unknown verb; {}bmojo --help lists them all", base::in_quotes(first),
               did_you_mean(first, verbs));
  }
  app.parse(argc, argv);
  base::require(!app.get_subcommands().empty(),
                "a verb is needed, got none; bmojo --help lists them");
}

void add_settings(CLI::App& verb, std::vector<std::string>& settings, const std::string& help) {
  using Settings = std::vector<std::string>;
  const auto set = [&settings](const Settings& given) {
    model::require_set_once(given);
    settings = given;
  };
  verb.add_option_function<Settings>("--set", set, help)
      ->option_text("key=value")
      ->allow_extra_args(false);
}

// Results count as delivered only when the last of them has left the buffer.
void flush_results() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw base::RunError(fmt::format("stdout: writing failed: {}", std::strerror(errno)));
}

}  // namespace

int run(int argc, char** argv, const char* program, std::initializer_list<AddVerb> verbs,
        const Elsewhere& elsewhere) {
  install_signals();
  fill_standard_descriptors();
  CLI::App app("B'MOJO: language models with eidetic and fading memory", program);
  try {
    check_current_folder();
    build(app, verbs);
    dispatch(app, argc, argv, elsewhere);
    flush_results();
    return kDone;
  } catch (const CLI::Success& request) {
    app.exit(request);
    return std::cout.flush() ? kDone : report_failure("stdout: writing failed");
  } catch (const CLI::ParseError& mistake) {
    return report(explain(app, mistake), kMistake);
  } catch (const Exit& ended) {
    return ended.code;
  } catch (const Interrupted& interrupted) {
    return report(interrupted.message, 128 + interrupted.signal);
  } catch (const base::Error& mistake) {
    return report(mistake.what(), kMistake);
  } catch (const std::filesystem::filesystem_error& mistake) {
    return report(fmt::format("{}: must be a usable path, got {}", mistake.path1().string(),
                              mistake.code().message()),
                  kMistake);
  } catch (const std::bad_alloc&) {
    return report("out of memory; choose a smaller model, batch or length", kRunFailed);
  } catch (const std::system_error& failure) {  // what printing throws
    return report_failure(std::ferror(stdout) == 0
                              ? failure.what()
                              : "stdout: writing failed: " + failure.code().message());
  } catch (const std::exception& failure) {
    return report_failure(failure.what());
  }
}

void end_with_130() { exit_code = 130; }

void defer_interrupts() { deferred = 1; }

int interrupted_by() { return received; }

void forget_interrupt(int signal) {
  second_signal.forget(signal);
  if (received == signal) received = 0;
  second_signal.forget(signal);  // one that came between the two was not received
}

void check_interrupted() {
  if (received != 0) throw Interrupted{received};
}

void add_common(CLI::App& verb, Common& common) {
  const char* group = "Everywhere";
  verb.add_flag("--json", common.json, "Print JSON and nothing else on stdout")->group(group);
  verb.add_flag("--quiet", common.quiet, "No progress on stderr")->group(group);
  add_number(verb, {"--threads", "Threads (default: all cores)", 1, 4096, "N"}, common.threads)
      ->group(group);
  add_number(verb, {"--seed", "Seed of what is random (default: 0)", 0, INT64_MAX, "N"},
             common.seed)
      ->group(group);
}

void add_model_choice(CLI::App& verb, model::ModelChoice& choice) {
  verb.add_option("--preset", choice.preset, "A model by name: bmojo config --list")
      ->option_text("NAME");
  verb.add_option("--config", choice.config, "A config.json, or a folder with one")
      ->option_text("FILE");
  add_settings(verb, choice.set, "Change a field; may be repeated");
}

void add_memory_settings(CLI::App& verb, std::vector<std::string>& settings) {
  add_settings(verb, settings, "eidetic_tokens, fading_tokens or window");
}

void print_json(const base::Json& json) {
  fmt::print("{}\n", json.dump(-1, ' ', false, base::Json::error_handler_t::replace));
}

}  // namespace bmojo::cli
