#include "bmojo/data/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "bmojo/base/error.h"
#include "bmojo/data/task.h"
#include "tests/data/token_folder.h"
#include "tests/temp_folder.h"

namespace bmojo::data {
namespace {

struct Row {
  std::vector<int64_t> ids, targets, documents;
  explicit Row(int64_t length) : ids(length), targets(length), documents(length) {}
  operator Reading() { return {ids, targets, documents}; }
};

// Documents of different lengths, ids counting upwards through them all; one more token ends each.
class PackingTest : public testing::Test {
 protected:
  PackingTest() : data_({test::write_tokens(folder_.path() / "data", {5, 1, 12, 7, 30, 3})}) {}
  int64_t total() const { return data_.num_tokens(); }

  test::TempFolder folder_;
  TokenData data_;
};

// The target is the next token of the same document; the last of a document is not scored.
void check_targets(const Row& row, int64_t end_of_document) {
  for (size_t t = 0; t < row.ids.size(); ++t) {
    if (row.ids[t] == end_of_document) {
      EXPECT_EQ(row.targets[t], kNotScored);
    }
    if (t + 1 == row.ids.size()) continue;
    const bool same = row.documents[t] == row.documents[t + 1];
    EXPECT_EQ(same, row.ids[t] != end_of_document) << t;
    if (same) {
      EXPECT_EQ(row.targets[t], row.ids[t + 1]) << t;
    }
  }
}

TEST_F(PackingTest, AnEpochOfContextsReadsDifferentTokens) {
  const Packing packing(data_, {0, total()}, 8, 2, 1);
  std::set<std::vector<int64_t>> seen;
  const int64_t pieces = (total() - 1) / 8 - 1;
  for (int64_t turn = 0; turn < pieces; ++turn) {
    Row row(8);
    packing.read(turn % 2, turn / 2 * 8, row);
    check_targets(row, test::kEnd);
    EXPECT_TRUE(seen.insert(row.ids).second) << "a piece twice in an epoch";
  }
}

TEST_F(PackingTest, EpochsDifferAndSeedsDiffer) {
  const auto first_epoch = [&](uint64_t seed, int64_t from) {
    const Packing packing(data_, {0, total()}, 0, 1, seed);
    Row row(total());
    packing.read(0, from, row);
    return row.ids;
  };
  EXPECT_EQ(first_epoch(1, 0), first_epoch(1, 0));
  EXPECT_NE(first_epoch(1, 0), first_epoch(2, 0));
  EXPECT_NE(first_epoch(1, 0), first_epoch(1, total()));
  auto sorted = first_epoch(1, 0), other = first_epoch(1, total());
  std::ranges::sort(sorted);
  std::ranges::sort(other);
  EXPECT_EQ(sorted, other) << "an epoch is every token once";
}

// However a stream is cut into readings, the same tokens come.
TEST_F(PackingTest, AStreamGoesOnAnywhere) {
  const Packing packing(data_, {0, total()}, 0, 3, 4);
  for (int64_t row = 0; row < 3; ++row) {
    Row whole(5 * total());
    packing.read(row, 0, whole);
    check_targets(whole, test::kEnd);
    for (const int64_t length : {1, 7, 10}) {
      for (int64_t from = 0; from + length <= std::ssize(whole.ids); from += length) {
        Row part(length);
        packing.read(row, from, part);
        for (int64_t t = 0; t < length; ++t) {
          ASSERT_EQ(part.ids[t], whole.ids[from + t]);
          ASSERT_EQ(part.targets[t], whole.targets[from + t]);
          ASSERT_EQ(part.documents[t], whole.documents[from + t]);
        }
      }
    }
  }
}

TEST_F(PackingTest, PiecesAreDocumentsOfTheirOwn) {
  const Packing packing(data_, {0, total()}, 8, 1, 1);
  int64_t before = -1;
  for (int64_t turn = 0; turn < 40; ++turn) {
    Row row(8);
    packing.read(0, 8 * turn, row);
    EXPECT_NE(row.documents.front(), before);
    before = row.documents.back();
    Row half(4);  // the second half goes on with the first's documents
    packing.read(0, 8 * turn + 4, half);
    EXPECT_EQ(half.documents.front(), row.documents[4]);
    EXPECT_EQ(half.ids.front(), row.ids[4]);
  }
}

TEST_F(PackingTest, ARangeCutsDocuments) {
  const TokenRange part{3, 20};
  Row row(part.end - part.begin);
  read_in_order(data_, part, part.begin, row);
  std::vector<int64_t> expected(row.ids.size());
  data_.read(part.begin, expected);
  EXPECT_EQ(row.ids, expected);
  EXPECT_EQ(row.targets.back(), kNotScored) << "what lies beyond the range must not be seen";
  check_targets(row, test::kEnd);
  const Packing packing(data_, part, 0, 1, 1);
  Row all(part.end - part.begin);
  packing.read(0, 0, all);
  std::ranges::sort(all.ids);
  std::ranges::sort(expected);
  EXPECT_EQ(all.ids, expected);
}

TEST_F(PackingTest, TooFewTokensAreRefused) {
  EXPECT_THROW(Packing(data_, {0, total()}, total(), 1, 1), base::Error);
  EXPECT_NO_THROW(Packing(data_, {0, total()}, total() - 1, 1, 1));
}

}  // namespace
}  // namespace bmojo::data
