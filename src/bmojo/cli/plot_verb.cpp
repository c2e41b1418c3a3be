// `bmojo plot`: tools/plot.py draws, in the project's own Python; here it is found, given checked
// arguments and waited for.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "bmojo/base/error.h"
#include "bmojo/base/last_line.h"
#include "bmojo/cli/command_line.h"
#include "bmojo/cli/verbs.h"

namespace bmojo {
namespace {
namespace fs = std::filesystem;

struct Options {
  Common common;
  std::vector<std::string> runs;
  std::string out, tensorboard, against;
};

struct Script {
  fs::path python, file;
};

// A build lies inside the project: tools/ and .venv/ are in a folder above this program.
Script find_script() {
  const auto folder = fs::read_symlink("/proc/self/exe").parent_path();
  auto project = folder;
  std::error_code unreadable;
  while (!fs::exists(project / "tools" / "plot.py", unreadable)) {
    require(project != project.parent_path(),
            "plot: needs the project's Python and its tools/plot.py, got none above {}; run make "
            "setup in the project and use its build",
            folder.string());
    project = project.parent_path();
  }
  Script script{project / ".venv" / "bin" / "python", project / "tools" / "plot.py"};
  require(::access(script.python.c_str(), X_OK) == 0,
          "plot: needs the project's Python, got none at {}; run make setup",
          script.python.string());
  return script;
}

void check_run(const std::string& run) {
  std::error_code unreadable;
  require(fs::is_directory(run, unreadable),
          "plot: {} must be a folder with metrics.jsonl, got {}; bmojo train --out makes one", run,
          fs::exists(run, unreadable) ? "a file" : "none");
  require(fs::is_regular_file(fs::path(run) / "metrics.jsonl", unreadable),
          "plot: {} must be a folder with metrics.jsonl, got one without; bmojo train --out makes "
          "one",
          run);
}

void check_results(const Options& options) {
  std::error_code unreadable;
  require(options.runs.size() == 1 && fs::is_regular_file(options.runs.front(), unreadable),
          "plot: --against needs one results.jsonl of bmojo sweep, got {}",
          options.runs.size() == 1 ? options.runs.front() : "several");
  require(options.tensorboard.empty(), "plot: --against cannot be given with --tensorboard");
}

std::string default_out(const Options& options) {
  const fs::path first = options.runs.front();
  return options.against.empty() ? (first / "metrics.png").string()
                                 : fs::path(first).replace_extension(".png").string();
}

std::vector<std::string> command(const Options& options, const Script& script) {
  const auto out = options.out.empty() ? default_out(options) : options.out;
  std::vector<std::string> words = {script.python.string(), script.file.string(), "--out=" + out};
  if (!options.tensorboard.empty()) words.push_back("--tensorboard=" + options.tensorboard);
  if (!options.against.empty()) words.push_back("--against=" + options.against);
  if (options.common.json) words.emplace_back("--json");
  words.emplace_back("--");
  words.insert(words.end(), options.runs.begin(), options.runs.end());
  return words;
}

[[noreturn]] void fail_to(const char* what) {
  throw RunError(fmt::format("plot: cannot {}: {}", what, std::strerror(errno)));
}

// Never returns. Only calls that are safe between fork and exec.
[[noreturn]] void become(char* const* words, int messages) {
  // A signal that ends the parent at once ends the drawing too.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  ::dup2(messages, STDERR_FILENO);
  ::execv(words[0], words);
  ::_exit(127);
}

struct Ending {
  int status = 0;        // as waitpid() gives it
  std::string messages;  // all of the script's stderr
};

// The script's stdout is ours.
Ending run_script(std::vector<std::string> words) {
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail_to("make a pipe");
  const pid_t child = ::fork();
  if (child == 0) become(pointers.data(), ends[1]);
  const int fork_error = errno;
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    errno = fork_error;
    fail_to("start a process");
  }
  Ending ending;
  std::array<char, 4096> buffer{};
  ssize_t count = 0;
  while ((count = ::read(ends[0], buffer.data(), buffer.size())) != 0) {
    if (count > 0) ending.messages.append(buffer.data(), static_cast<size_t>(count));
    if (count < 0 && errno != EINTR) break;
  }
  ::close(ends[0]);
  while (::waitpid(child, &ending.status, 0) < 0)
    if (errno != EINTR) fail_to("wait for the script");
  return ending;
}

void run_plot(const Options& options) {
  if (options.against.empty())
    for (const auto& run : options.runs) check_run(run);
  else
    check_results(options);
  const auto script = find_script();
  const auto [status, messages] = run_script(command(options, script));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    if (!options.common.quiet) std::fputs(messages.c_str(), stderr);
    return;
  }
  // Nobody reads what the script says on our stdout.
  if (WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGPIPE) throw Exit{WEXITSTATUS(status)};
  std::string line(last_line(messages));
  const bool exited = WIFEXITED(status);
  if (line.empty())
    line = fmt::format("plot: {} ended with {} {}", script.file.string(),
                       exited ? "exit code" : "signal",
                       exited ? WEXITSTATUS(status) : WTERMSIG(status));
  if (exited && WEXITSTATUS(status) == 2) throw Error(line);
  throw RunError(line);
}

}  // namespace

void add_plot_verb(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("plot", "Draw the curves of training runs");
  verb->add_option("RUN", options->runs, "Folders that bmojo train wrote, or a sweep's results")
      ->type_name("")
      ->required();
  verb->add_option("--out", options->out, "Picture to write (default: metrics.png in RUN)")
      ->option_text("F.png");
  verb->add_option("--tensorboard", options->tensorboard, "Also write event files there")
      ->option_text("DIR");
  verb->add_option("--against", options->against, "Draw a sweep's results over an axis")
      ->option_text("AXIS");
  add_common(*verb, options->common);
  verb->callback([options] { run_plot(*options); });
}

}  // namespace bmojo
