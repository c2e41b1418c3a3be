#include "bmojo/data/shard_header.h"
#include "tests/fuzz/support.h"

namespace bmojo::fuzz {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  parse_or_refuse([&] {
    const auto layout = data::parse_shard_header(std::as_bytes(std::span(data, size)), "file");
    const auto& info = layout.info;
    const auto index_bytes = static_cast<size_t>(info.num_documents) * sizeof(data::DocumentEnd);
    demand(layout.index_offset >= data::kShardHeaderBytes + layout.token_bytes,
           "index must stand behind the tokens");
    demand(layout.index_offset + index_bytes == size, "sections must fill the file");
    demand(layout.token_bytes == static_cast<size_t>(info.num_tokens) * layout.width,
           "tokens must fill their section");
  });
  return 0;
}

}  // namespace bmojo::fuzz
