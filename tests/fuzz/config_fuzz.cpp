#include "bmojo/base/json.h"
#include "bmojo/memory/state_size.h"
#include "bmojo/model/config.h"
#include "bmojo/model/flops.h"
#include "bmojo/model/tensors.h"
#include "tests/fuzz/support.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bmojo;
  fuzz::parse_or_refuse([&] {
    const auto config = config_from_json(parse_json(fuzz::text_of(data, size), "file"), "file");
    const auto again = config_from_json(parse_json(to_json(config).dump(), "again"), "again");
    fuzz::demand(again == config, "config must read back as it was written");
    // No count of a config that is let through may overflow.
    fuzz::demand(count_parameters(config) > 0, "parameters must be counted");
    fuzz::demand(memory_bytes(config, 1 << 20).total() >= 0, "memory must be counted");
    fuzz::demand(training_flops_per_token(config, 1 << 20) > 0, "operations must be counted");
  });
  return 0;
}
