#include "bmojo/cli/sweep_folder.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <thread>

#include "bmojo/base/error.h"
#include "bmojo/base/last_line.h"
#include "bmojo/cli/processes.h"

namespace bmojo::cli {
namespace fs = std::filesystem;

SweepFolder::SweepFolder(const fs::path& out)
    : out_(base::absolute_path(out)), is_new_(!fs::exists(out_)) {
  base::create_folders(out_, "--out");
  lock_.emplace(out_ / "lock", "--out");
  fs::remove_all(out_ / kPrograms);
  fs::create_directory(out_ / kPrograms);
  const auto from = fs::read_symlink("/proc/self/exe").parent_path();
  for (const char* name : {"bmojo", "bmojo-torch", "bmojo-sentencepiece.so"}) {
    base::require(fs::exists(from / name), "sweep: needs {} beside bmojo, got none in {}", name,
                  base::shown(from));
    fs::copy_file(from / name, out_ / kPrograms / name);
  }
}

SweepFolder::~SweepFolder() {
  std::error_code ignored;
  fs::remove_all(out_ / kPrograms, ignored);
  const auto names = fs::directory_iterator(out_, ignored);
  if (!is_new_ || std::distance(begin(names), end(names)) != 1) return;
  fs::remove(out_ / "lock", ignored);
  fs::remove(out_, ignored);
}

std::string commit_of(const SweepFolder& folder) {
  int code = 0;
  const auto out = folder.scratch("version.out"), messages = folder.scratch("version.err");
  const auto process = start_process({folder.program(), "--version"}, out, messages);
  while (!has_ended(process, code)) std::this_thread::sleep_for(kLook);
  const auto text = contents(out);
  const auto at = text.find("(commit "), end = text.find(')', at);
  if (code != 0 || end == std::string::npos)
    throw base::RunError(fmt::format("bmojo-torch: cannot be run: {}", complaint(messages, code)));
  return text.substr(at + 8, end - at - 8);
}

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string complaint(const fs::path& messages, int code) {
  std::string line(base::last_line(contents(messages)));
  if (line.starts_with("bmojo: ")) line.erase(0, 7);
  return line.empty() ? fmt::format("ended with exit code {}", code) : line;
}

}  // namespace bmojo::cli
