#include "bmojo/memory/pieces.h"

#include <gtest/gtest.h>

#include "bmojo/base/random.h"
#include "bmojo/memory/visibility.h"

namespace bmojo::memory {
namespace {

// The position of every token and the chunk borders between them, however the tokens are cut.
TEST(Pieces, DoNotDependOnWhereCallsBegin) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    base::Random random({seed});
    const auto L = static_cast<int64_t>(1 + random.below(40));
    const auto w = static_cast<int64_t>(1 + random.below(9));
    std::vector<int64_t> documents;
    for (int64_t i = 0, id = 0; i < L; ++i) documents.push_back(id += random.below(6) == 0);
    const auto whole = cut_into_pieces({1, L, {}, documents}, {}, w);

    std::vector<int64_t> positions, begins;
    Cursor cursor;
    for (int64_t from = 0; from < L;) {
      const auto count = static_cast<int64_t>(1 + random.below(static_cast<uint64_t>(L - from)));
      const auto part = cut_into_pieces(
          {1, count, {}, {documents.begin() + from, documents.begin() + from + count}}, cursor, w);
      positions.insert(positions.end(), part.token_position.begin(), part.token_position.end());
      for (const auto& piece : part.pieces) {
        EXPECT_LE(piece.position % w + piece.count, w);
        // A piece that begins inside a chunk goes on with the one before it.
        if (begins_chunk(piece.position, w)) begins.push_back(from + piece.column);
      }
      cursor = part.next;
      from += count;
    }
    EXPECT_EQ(positions, whole.token_position) << "seed " << seed;
    std::vector<int64_t> of_whole;
    for (const auto& piece : whole.pieces) of_whole.push_back(piece.column);
    EXPECT_EQ(begins, of_whole) << "seed " << seed;
    EXPECT_EQ(cursor.position, whole.next.position) << "seed " << seed;
    EXPECT_EQ(cursor.document, whole.next.document) << "seed " << seed;
  }
}

// By the definitions of docs/model.md, token by token.
TEST(Visibility, OfEveryQueryAndKey) {
  for (const int64_t w : {1, 2, 5})
    for (const int64_t m_f : {1, 3, 7})
      for (const bool sliding : {false, true})
        for (int64_t t = 0; t < 30; ++t) {
          const FadingMemory fading{w, m_f, sliding};
          const WindowMemory window{w};
          const int64_t s = t / w * w, first = sliding ? t - w - m_f + 1 : s - m_f,
                        last = sliding ? t - w : s - 1;
          for (int64_t p = 0; p <= t; ++p) {
            const auto sees = [&](const Span& keys, const SeenBy& seen) {
              return p >= keys.first && p <= keys.last && t >= seen.from &&
                     t < seen.from + seen.count;
            };
            EXPECT_EQ(sees(window.keys(t, 1), window.seen_by(p)), p > t - w);
            EXPECT_EQ(sees(fading.keys(t, 1), fading.seen_by(p, t)), p >= first && p <= last);
            if (p >= first && p <= last) {
              EXPECT_TRUE(fading.projects(p));
            }
          }
          // What is carried before t names its positions, and the rows they lie in.
          for (int64_t row = 0; row < fading.num_rows(); ++row)
            if (const int64_t p = fading.position_of(row, t); p >= 0) {
              EXPECT_EQ(fading.row_of(p, t), row);
            }
        }
}

}  // namespace
}  // namespace bmojo::memory
