#include "bmojo/cli/script.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <system_error>

#include "bmojo/base/error.h"
#include "bmojo/base/last_line.h"
#include "bmojo/cli/command_line.h"

namespace bmojo::cli {
namespace {
namespace fs = std::filesystem;

[[noreturn]] void fail_to(const Script& script, const char* what) {
  throw base::RunError(fmt::format("{}: cannot {}: {}", script.verb, what, std::strerror(errno)));
}

// A descriptor that is closed with its scope.
struct Owned {
  int descriptor = -1;
  Owned() = default;
  explicit Owned(int descriptor) : descriptor(descriptor) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { close(); }
  void close() {
    if (descriptor >= 0) ::close(descriptor);
    descriptor = -1;
  }
};

// A file without a name: unlike a pipe it holds any number of bytes before they are read.
int open_input(const Script& script, std::string_view text) {
  const int file = ::memfd_create("input", MFD_CLOEXEC);
  if (file < 0) fail_to(script, "make a file for its script");
  while (!text.empty()) {
    const ssize_t count = ::write(file, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      ::close(file);
      errno = error;
      fail_to(script, "write for its script");
    }
    text.remove_prefix(static_cast<size_t>(count));
  }
  ::lseek(file, 0, SEEK_SET);
  return file;
}

// Never returns. Only calls that are safe between fork and exec.
[[noreturn]] void become(char* const* words, int input, int messages) {
  // A signal that ends the parent at once ends the drawing too.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  ::dup2(input, STDIN_FILENO);
  ::dup2(messages, STDERR_FILENO);
  ::execv(words[0], words);
  ::_exit(127);
}

struct Ending {
  int status = 0;        // as waitpid() gives it
  std::string messages;  // all of the script's stderr
};

Ending wait_for(const Script& script, std::vector<std::string> words, const std::string& text) {
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  Owned input(open_input(script, text));
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail_to(script, "make a pipe");
  const Owned said(ends[0]);
  Owned messages(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) become(pointers.data(), input.descriptor, messages.descriptor);
  if (child < 0) fail_to(script, "start a process");
  input.close();
  messages.close();
  Ending ending;
  std::array<char, 4096> buffer{};
  ssize_t count = 0;
  while ((count = ::read(said.descriptor, buffer.data(), buffer.size())) != 0) {
    if (count > 0) ending.messages.append(buffer.data(), static_cast<size_t>(count));
    if (count < 0 && errno != EINTR) break;
  }
  while (::waitpid(child, &ending.status, 0) < 0)
    if (errno != EINTR) fail_to(script, "wait for the script");
  return ending;
}

}  // namespace

// A build lies inside the project: tools/ and .venv/ are in a folder above this program.
Script find_script(const std::string& verb) {
  const auto folder = fs::read_symlink("/proc/self/exe").parent_path();
  const auto file = fs::path("tools") / (verb + ".py");
  auto project = folder;
  std::error_code unreadable;
  while (!fs::exists(project / file, unreadable)) {
    base::require(
        project != project.parent_path(),
        "{}: needs the project's Python and its {}, got none above {}; run make setup in the "
        "project and use its build",
        verb, file.string(), folder.string());
    project = project.parent_path();
  }
  Script script{verb, project / ".venv" / "bin" / "python", project / file};
  base::require(::access(script.python.c_str(), X_OK) == 0,
                "{}: needs the project's Python, got none at {}; run make setup", verb,
                script.python.string());
  return script;
}

std::string run_script(const Script& script, const std::vector<std::string>& arguments,
                       const std::string& input) {
  std::vector<std::string> words = {script.python.string(), script.file.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  auto [status, messages] = wait_for(script, std::move(words), input);
  const bool exited = WIFEXITED(status);
  if (exited && WEXITSTATUS(status) == 0) return messages;
  // Nobody reads what the script says on our stdout.
  if (exited && WEXITSTATUS(status) == 128 + SIGPIPE) throw Exit{WEXITSTATUS(status)};
  std::string line(base::last_line(messages));
  if (line.empty())
    line = fmt::format("{}: {} ended with {} {}", script.verb, script.file.string(),
                       exited ? "exit code" : "signal",
                       exited ? WEXITSTATUS(status) : WTERMSIG(status));
  if (exited && WEXITSTATUS(status) == 2) throw base::Error(line);
  throw base::RunError(line);
}

}  // namespace bmojo::cli
