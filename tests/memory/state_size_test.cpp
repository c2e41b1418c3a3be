#include "bmojo/memory/state_size.h"

#include <gtest/gtest.h>

namespace bmojo {
namespace {

TEST(Config, MemoryBytesCountWhatAStateHolds) {
  auto c = preset("bmojo-tiny");  // G d = 32: a row is 2 * 32 * 4 = 256 bytes; 4 layers
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
  EXPECT_EQ(memory_bytes(preset("transformer-tiny"), 100).total(), 4 * 100 * 256);
  EXPECT_EQ(memory_bytes(preset("mamba-tiny")).window, 0);
}

}  // namespace
}  // namespace bmojo
