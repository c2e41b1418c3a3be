#include "bmojo/data/pieces.h"

#include <dlfcn.h>
#include <link.h>

#include <array>
#include <filesystem>

#include "bmojo/base/error.h"

namespace bmojo::data {
namespace fs = std::filesystem;
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr int kOwnNamesFirst = 0;  // AddressSanitizer refuses it, and runs without torch
#else
constexpr int kOwnNamesFirst = RTLD_DEEPBIND;
#endif

constexpr const char* kModule = "bmojo-sentencepiece.so";

// The folder of the file that this code was loaded from: a program, or libbmojo.so.
fs::path own_folder() {
  Dl_info ignored;
  link_map* file = nullptr;
  const int known = ::dladdr1(reinterpret_cast<const void*>(&own_folder), &ignored,
                              reinterpret_cast<void**>(&file), RTLD_DL_LINKMAP);
  // A program has no name there.
  const bool is_library = known != 0 && file != nullptr && file->l_name[0] != '\0';
  return (is_library ? fs::canonical(file->l_name) : fs::read_symlink("/proc/self/exe"))
      .parent_path();
}

// Beside the programs of a build; of an installation in lib/bmojo, seen from lib or bin.
fs::path find_module() {
  const auto own = own_folder();
  const std::array places = {own, own / "bmojo", own.parent_path() / BMOJO_LIBDIR / "bmojo"};
  for (const auto& place : places)
    if (fs::exists(place / kModule)) return place / kModule;
  return own / kModule;
}

void* load_module() {
  const auto path = find_module();
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | kOwnNamesFirst);
  if (module == nullptr)
    throw base::RunError(fmt::format("tokenizer: needs {}, got {}; build again", path.string(),
                                     fs::exists(path) ? ::dlerror() : "none"));
  return module;
}

}  // namespace

std::unique_ptr<Pieces> make_pieces() {
  static void* const module = load_module();
  using Make = Pieces* (*)();
  const auto make = reinterpret_cast<Make>(::dlsym(module, "bmojo_make_pieces"));
  if (make == nullptr)
    throw base::RunError("tokenizer: bmojo-sentencepiece.so must be of this version, got another");
  return std::unique_ptr<Pieces>(make());
}

}  // namespace bmojo::data
