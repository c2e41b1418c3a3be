#include "bmojo/memory/state_size.h"

#include <gtest/gtest.h>

#include "bmojo/base/error.h"

namespace bmojo::memory {
namespace {

TEST(Config, MemoryBytesCountWhatAStateHolds) {
  auto c = model::preset("bmojo-tiny");  // G d = 32: a row is 2 * 32 * 4 = 256 bytes; 4 layers
  auto bytes = memory_bytes(c);
  EXPECT_EQ(bytes.window, 4 * 512 * 256);
  EXPECT_EQ(bytes.fading, 4 * 2 * 16 * 256);
  EXPECT_EQ(bytes.ssm_state, 4 * 128 * 16 * 4);
  EXPECT_EQ(bytes.conv_tail, 4 * 128 * 3 * 4);
  EXPECT_EQ(bytes.predictor, 4 * 4 * 128 * 4);
  EXPECT_EQ(bytes.eidetic, 4 * 64 * (256 + 2 * 20));
  c.fading_mode = "sliding";
  EXPECT_EQ(memory_bytes(c).fading, 4 * (512 + 15) * 256);
  c.eidetic_tokens = 0;
  EXPECT_EQ(memory_bytes(c).predictor + memory_bytes(c).eidetic, 0);
  EXPECT_EQ(memory_bytes(model::preset("transformer-tiny"), 100).total(), 4 * 100 * 256);
  EXPECT_EQ(memory_bytes(model::preset("mamba-tiny")).window, 0);
}

// The largest config that is let through.
TEST(Config, MemoryBytesFit63Bits) {
  auto c = model::preset("bmojo-tiny");
  for (const auto* field :
       {"vocab_size=16777216", "hidden_size=1048576", "num_layers=4096", "ssm_inner_size=1048576",
        "ssm_state_size=65536", "ssm_conv_taps=1024", "num_heads=1024", "num_kv_heads=1024",
        "head_size=2048", "window=16777216", "fading_tokens=16777216", "fading_mode=sliding",
        "eidetic_tokens=16777216", "predictor_taps=1024"})
    model::set_field(c, field);
  model::validate(c);
  EXPECT_GT(memory_bytes(c).total(), int64_t{1} << 61);
  c.head_size += 1;
  EXPECT_THROW(model::validate(c), base::Error);
}

}  // namespace
}  // namespace bmojo::memory
