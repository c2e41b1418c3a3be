#include "bmojo/base/json.h"
#include "bmojo/memory/state_size.h"
#include "bmojo/model/config.h"
#include "bmojo/model/flops.h"
#include "bmojo/model/tensors.h"
#include "tests/fuzz/support.h"

namespace bmojo::fuzz {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  parse_or_refuse([&] {
    const auto config =
        model::config_from_json(base::parse_json(text_of(data, size), "file"), "file");
    const auto again =
        model::config_from_json(base::parse_json(model::to_json(config).dump(), "again"), "again");
    demand(again == config, "config must read back as it was written");
    // No count of a config that is let through may overflow.
    demand(model::count_parameters(config) > 0, "parameters must be counted");
    demand(memory::memory_bytes(config, 1 << 20).total() >= 0, "memory must be counted");
    demand(model::training_flops_per_token(config, 1 << 20) > 0, "operations must be counted");
  });
  return 0;
}

}  // namespace bmojo::fuzz
