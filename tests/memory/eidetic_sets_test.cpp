#include "bmojo/memory/eidetic_sets.h"

#include <gtest/gtest.h>

namespace bmojo::memory {
namespace {

TEST(Selection, RanksByRule) {
  EXPECT_EQ(eidetic_rank("innovation", 0, 0.5, 7, 3), 0.5);
  EXPECT_EQ(eidetic_rank("first", 0, 0.5, 7, 3), eidetic_rank("first", 0, 2, 9, 4));
  EXPECT_LT(eidetic_rank("recent", 0, 0.5, 7, 3), eidetic_rank("recent", 0, 0.1, 8, 3));
  const double drawn = eidetic_rank("random", 1, 0.5, 7, 3);
  EXPECT_EQ(drawn, eidetic_rank("random", 1, 9, 7, 3));
  EXPECT_NE(drawn, eidetic_rank("random", 2, 0.5, 7, 3));
  EXPECT_NE(drawn, eidetic_rank("random", 1, 0.5, 8, 3));
  EXPECT_NE(drawn, eidetic_rank("random", 1, 0.5, 7, 4));
}

TEST(Selection, ChunksFreezeAndDocumentsEmpty) {
  EideticSets sets{.frozen = {1}, .running = {1, 5}};
  EXPECT_FALSE(sets.begin(6, 4));  // inside a chunk: what queries see stays
  EXPECT_EQ(sets.frozen, (std::vector<int64_t>{1}));
  EXPECT_TRUE(sets.begin(8, 4));
  EXPECT_EQ(sets.frozen, (std::vector<int64_t>{1, 5}));
  EXPECT_TRUE(sets.begin(0, 4));
  EXPECT_TRUE(sets.frozen.empty());
  EXPECT_TRUE(sets.running.empty());
}

}  // namespace
}  // namespace bmojo::memory
