#include "bmojo/eval/ids_line.h"
#include "tests/fuzz/support.h"

// Lines, each by itself: a fault in one does not hide the next.

namespace bmojo::fuzz {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto rest = text_of(data, size);
  while (!rest.empty()) {
    const auto line = rest.substr(0, rest.find('\n'));
    parse_or_refuse([&] {
      const auto ids = eval::parse_ids_line(line, "file:1");
      demand(2 * ids.size() <= line.size(), "an id must take a digit and a mark", line);
    });
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  }
  return 0;
}

}  // namespace bmojo::fuzz
