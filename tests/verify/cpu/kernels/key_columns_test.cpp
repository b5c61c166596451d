#include "verify/cpu/kernels/key_columns.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "core/plan/kernels/sequence_share.hpp"

namespace mfsdp::kernels {
namespace {

TEST(KeyColumns, AreTakenFromRowsAndJoinedAgain) {
  // Two rows of three columns of queries, two of keys, two of values.
  std::vector<float> rows(2 * 7);
  std::iota(rows.begin(), rows.end(), 0.0F);
  const KeyColumns columns{.rows = 2, .query_cols = 3, .key_cols = 2};
  std::vector<float> keys(2 * 4);
  take_keys(TakeKeys<float>{.columns = columns,
                            .key = {.data = rows.data() + 3, .row = 7},
                            .value = {.data = rows.data() + 5, .row = 7},
                            .output = keys.data()});
  EXPECT_EQ(keys, (std::vector<float>{3, 4, 5, 6, 10, 11, 12, 13}));
  const std::vector<float> queries{0, 1, 2, 7, 8, 9};
  std::vector<float> joined(rows.size());
  join_keys(JoinKeys<float>{.columns = columns,
                            .query = {.data = queries.data(), .row = 3},
                            .key_value = keys.data(),
                            .output = joined.data()});
  EXPECT_EQ(joined, rows);
}

/// Ranks 2 and 3 of four hold the second head, each a column of its key and of its value.
TEST(KeyColumns, PartsOfAHeadAreThoseOfItsRanks) {
  const std::vector<float> queries{1, 2};
  std::vector<float> parts;  // of two rows
  for (const float rank : {0.0F, 1.0F, 2.0F, 3.0F})
    for (const float row : {0.0F, 1.0F})
      for (const float kind : {10.0F, 20.0F}) parts.push_back(100 * row + kind + rank);
  const KeyParts keys{
      .rows = 2, .cols = 5, .key_cols = 1, .holders = 2, .peers = 4, .rank = 3, .is_stated = true};
  std::vector<float> joined(2 * 5);
  join_key_parts(JoinKeyParts<float>{.keys = keys,
                                     .query = {.data = queries.data(), .row = 1},
                                     .parts = parts.data(),
                                     .output = joined.data()});
  EXPECT_EQ(joined, (std::vector<float>{1, 12, 13, 22, 23, 2, 112, 113, 122, 123}));
  std::vector<float> split(parts.size(), -1);
  split_key_parts(
      SplitKeyParts<float>{.keys = keys, .input = joined.data(), .parts = split.data()});
  std::fill_n(parts.begin(), 8, 0.0F);  // of the first head
  EXPECT_EQ(split, parts);
}

/// Each place is on one rank, each rank has its first and its last chunk, and equally many pairs.
TEST(SequenceShare, PlacesAreOnOneRankEach) {
  for (const std::int64_t parts : {2, 3, 4}) {
    const std::int64_t seq = 2 * parts * 3;
    std::vector<int> times(static_cast<std::size_t>(seq), 0);
    std::vector<std::int64_t> pairs(static_cast<std::size_t>(parts), 0);
    for (std::int64_t part = 0; part < parts; ++part) {
      const SequenceShare share{.parts = parts, .part = part, .is_part = true};
      EXPECT_EQ(share.place(0, seq), part * 3);
      EXPECT_EQ(share.place(share.rows(seq) - 1, seq), seq - 1 - part * 3);
      for (std::int64_t row = 0; row < share.rows(seq); ++row) {
        const std::int64_t place = share.place(row, seq);
        const std::int64_t gathered = part * share.rows(seq) + row;
        EXPECT_EQ(share.gathered_place(gathered, seq), place);
        EXPECT_EQ(share.gathered_row(place, seq), gathered);
        ++times[static_cast<std::size_t>(place)];
        pairs[static_cast<std::size_t>(part)] += place + 1;
      }
    }
    EXPECT_EQ(times, std::vector<int>(times.size(), 1)) << parts;
    EXPECT_EQ(pairs, std::vector<std::int64_t>(pairs.size(), pairs[0])) << parts;
  }
}

}  // namespace
}  // namespace mfsdp::kernels
