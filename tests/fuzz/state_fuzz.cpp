#include <cstring>

#include "bmojo/base/digest.h"
#include "bmojo/infer/snapshot.h"
#include "tests/fuzz/support.h"

// A state file without the digest at its end, which nobody can guess: it is put there.

namespace bmojo::fuzz {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string file(text_of(data, size));
  file += base::digest_of_text(file);
  parse_or_refuse([&] {
    const auto snapshot = infer::read_snapshot(std::as_bytes(std::span(file)), "file");
    const auto& config = snapshot.origin.config;
    demand(std::ssize(snapshot.state.layers) == config.num_layers, "layers must be whole");
    for (int64_t i = 0; i < config.num_layers; ++i)
      infer::visit_with_sizes(snapshot.state.layers[static_cast<size_t>(i)],
                              memory::sizes_of(config, i, snapshot.state.position),
                              [](const char* name, const auto& array, size_t wanted) {
                                demand(array.size() == wanted, "array must have its length", name);
                              });
  });
  return 0;
}

}  // namespace bmojo::fuzz
