#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "bmojo/base/file.h"
#include "bmojo/cli/sweep_file.h"

namespace bmojo::cli {

// Between two looks at processes.
inline constexpr std::chrono::milliseconds kLook{50};

inline constexpr const char* kPrograms = ".bmojo-sweep";

// The folder of a sweep, locked, and in it a copy of the programs: a rebuild meanwhile changes
// nothing. The copy is removed at the end, and so is a folder in which nothing was run.
class SweepFolder {
 public:
  explicit SweepFolder(const std::filesystem::path& out);
  ~SweepFolder();
  SweepFolder(const SweepFolder&) = delete;
  SweepFolder& operator=(const SweepFolder&) = delete;

  const std::filesystem::path& path() const { return out_; }
  std::filesystem::path scratch(const std::string& name) const { return out_ / kPrograms / name; }
  std::string program() const { return (out_ / kPrograms / "bmojo-torch").string(); }
  std::string evaluator() const { return (out_ / kPrograms / "bmojo").string(); }
  std::filesystem::path folder(const SweepRun& run) const { return out_ / run.name; }
  std::filesystem::path beside(const SweepRun& run, const char* ending) const {
    return out_ / (run.name + ending);
  }

 private:
  std::filesystem::path out_;
  bool is_new_;
  std::optional<base::LockedFile> lock_;
};

// The commit the programs were built from, as they say it themselves.
std::string commit_of(const SweepFolder& folder);

// The whole of a file that a program wrote; nothing where there is none.
std::string contents(const std::filesystem::path& path);
// What a program had to say when it failed.
std::string complaint(const std::filesystem::path& messages, int code);

}  // namespace bmojo::cli
