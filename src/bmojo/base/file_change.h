#pragma once

#include <filesystem>

namespace bmojo::base {

enum class FileChange { create, write, flush, rename, remove };

// Stands in front of every call that changes the file system or flushes it to the disk. Tests watch
// and disturb those calls by variables of the environment; each process counts its own:
//   BMOJO_FILE_LOG=FILE  a line per call is added to FILE: what, path and new path, a tab between;
//   BMOJO_KILL_AT=N      the process kills itself in front of the N-th call;
//   BMOJO_FAIL_AT=N      the N-th call fails with EIO.
// False, with errno set, where the call has failed and must not be made.
[[nodiscard]] bool before_file_change(FileChange what, const std::filesystem::path& path,
                                      const std::filesystem::path& new_path = {});

}  // namespace bmojo::base
