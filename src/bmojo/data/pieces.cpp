#include "bmojo/data/pieces.h"

#include <dlfcn.h>

#include <filesystem>

#include "bmojo/base/error.h"

namespace bmojo {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr int kOwnNamesFirst = 0;  // AddressSanitizer refuses it, and runs without torch
#else
constexpr int kOwnNamesFirst = RTLD_DEEPBIND;
#endif

void* load_module() {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  const auto path = program.parent_path() / "bmojo-sentencepiece.so";
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | kOwnNamesFirst);
  if (module == nullptr)
    throw RunError(fmt::format("tokenizer: needs {}, got {}; build again", path.string(),
                               std::filesystem::exists(path) ? ::dlerror() : "none"));
  return module;
}

}  // namespace

std::unique_ptr<Pieces> make_pieces() {
  static void* const module = load_module();
  using Make = Pieces* (*)();
  const auto make = reinterpret_cast<Make>(::dlsym(module, "bmojo_make_pieces"));
  if (make == nullptr)
    throw RunError("tokenizer: bmojo-sentencepiece.so must be of this version, got another");
  return std::unique_ptr<Pieces>(make());
}

}  // namespace bmojo
