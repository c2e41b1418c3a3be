#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace bmojo::cli {

// A verb's pictures are drawn by a script of tools/, in the project's own Python.
struct Script {
  std::string verb;  // whose script it is, for messages
  std::filesystem::path python, file;
};

// tools/VERB.py above this program; Error where it or its Python is absent.
Script find_script(const std::string& verb);

// Runs it with `input` as its standard input and our stdout as its own, waits, and returns what it
// said on stderr. A failure is thrown as the last line of that: Error where the script ended with
// 2, RunError otherwise.
std::string run_script(const Script& script, const std::vector<std::string>& arguments,
                       const std::string& input = "");

}  // namespace bmojo::cli
