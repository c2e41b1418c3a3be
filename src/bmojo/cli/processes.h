#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace bmojo::cli {

// Starts a program with its output in files, appended to. It hears nothing of the terminal's
// signals, and is asked to end when this process dies.
pid_t start_process(std::vector<std::string> words, const std::filesystem::path& out,
                    const std::filesystem::path& messages);

// Whether it has ended; then `code` is its exit code, or 128 + the signal that ended it.
bool has_ended(pid_t process, int& code);

// Asks all of them to end, waits, and ends by force what has not after a minute.
void end_processes(const std::vector<pid_t>& processes);

}  // namespace bmojo::cli
