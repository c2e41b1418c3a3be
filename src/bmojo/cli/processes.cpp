#include "bmojo/cli/processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "bmojo/base/error.h"

namespace bmojo::cli {
namespace {
using namespace std::chrono_literals;

constexpr auto kPatience = 60s;
constexpr auto kLook = 20ms;

// Never returns. Only calls that are safe between fork and exec.
[[noreturn]] void become(char* const* words, const char* out, const char* messages, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(128 + SIGTERM);  // it died before it could be watched
  constexpr int kAppend = O_WRONLY | O_CREAT | O_APPEND;
  const int input = ::open("/dev/null", O_RDONLY);
  const int output = ::open(out, kAppend, 0666), errors = ::open(messages, kAppend, 0666);
  if (input < 0 || output < 0 || errors < 0) ::_exit(127);
  ::dup2(input, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(errors, STDERR_FILENO);
  ::execv(words[0], words);
  ::_exit(127);
}

}  // namespace

pid_t start_process(std::vector<std::string> words, const std::filesystem::path& out,
                    const std::filesystem::path& messages) {
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) become(pointers.data(), out.c_str(), messages.c_str(), parent);
  if (child < 0)
    throw base::RunError(fmt::format("{}: cannot be started: {}", words[0], std::strerror(errno)));
  return child;
}

bool has_ended(pid_t process, int& code) {
  int status = 0;
  if (::waitpid(process, &status, WNOHANG) != process) return false;
  code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return true;
}

void end_processes(const std::vector<pid_t>& processes) {
  for (const auto process : processes) ::kill(process, SIGTERM);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (const auto process : processes) {
    int code = 0;
    bool ended = has_ended(process, code);
    for (; !ended && std::chrono::steady_clock::now() < deadline; ended = has_ended(process, code))
      std::this_thread::sleep_for(kLook);
    if (ended) continue;
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
  }
}

}  // namespace bmojo::cli
