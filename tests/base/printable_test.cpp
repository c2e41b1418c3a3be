#include "bmojo/base/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace bmojo::base {
namespace {

TEST(Watchable, KeepsTextAndLines) {
  EXPECT_EQ(watchable("a\tb\nc é 記 😀 \u00a0"), "a\tb\nc é 記 😀 \u00a0");
  EXPECT_EQ(watchable(""), "");
  EXPECT_EQ(watchable("\xc2"), "\xc2");  // nothing is read behind the end
}

TEST(Watchable, MovesNoCursor) {
  for (int c = 0; c < 0x20; ++c)
    if (c != '\n' && c != '\t')
      EXPECT_EQ(watchable(std::string{'a', static_cast<char>(c), 'b'}), "a?b") << c;
  EXPECT_EQ(watchable("\x1b[2J"), "?[2J");
  EXPECT_EQ(watchable("\x7f"), "?");
  for (int c = 0x80; c < 0xa0; ++c)
    EXPECT_EQ(watchable(std::string{'a', '\xc2', static_cast<char>(c), 'b'}), "a?b") << c;
}

}  // namespace
}  // namespace bmojo::base
