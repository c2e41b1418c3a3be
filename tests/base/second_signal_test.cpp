#include "bmojo/base/second_signal.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace bmojo::base {
namespace {

TEST(SecondSignal, IsTheSameOneLater) {
  SecondSignal signals;
  EXPECT_FALSE(signals.is_second(SIGINT, 1000));
  EXPECT_FALSE(signals.is_second(SIGINT, 1001));  // sent to the process and to its group
  EXPECT_FALSE(signals.is_second(SIGINT, 1000 + SecondSignal::kEcho));
  EXPECT_FALSE(signals.is_second(SIGTERM, 2000));  // torchrun's, after a terminal's SIGINT
  EXPECT_TRUE(signals.is_second(SIGINT, 1001 + SecondSignal::kEcho));
  EXPECT_TRUE(signals.is_second(SIGTERM, 3000));
}

TEST(SecondSignal, IsAFirstOneOnceForgotten) {
  SecondSignal signals;
  EXPECT_FALSE(signals.is_second(SIGINT, 1000));
  EXPECT_FALSE(signals.is_second(SIGTERM, 1000));
  signals.forget(SIGINT);
  EXPECT_FALSE(signals.is_second(SIGINT, 5000));
  EXPECT_TRUE(signals.is_second(SIGTERM, 5000));
  EXPECT_TRUE(signals.is_second(SIGINT, 6000));
}

TEST(SecondSignal, HasAClock) {
  SecondSignal signals;
  EXPECT_FALSE(signals.is_second(SIGRTMAX));
  EXPECT_TRUE(signals.is_second(SIGRTMAX, INT64_MAX));
}

}  // namespace
}  // namespace bmojo::base
