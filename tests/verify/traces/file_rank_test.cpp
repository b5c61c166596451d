#include "verify/traces/file_rank.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verify/traces/rank_words.hpp"

namespace mfsdp::traces {
namespace {

using ::testing::ElementsAre;
using Paths = std::vector<std::filesystem::path>;

TEST(FileRank, IsTheNumberThatTheNameEndsWith) {
  EXPECT_EQ(rank_in_name("nccl_trace_rank_12"), 12);
  EXPECT_EQ(rank_in_name("fr_good_0"), 0);
  EXPECT_EQ(rank_in_name("dump.7"), 7);
  EXPECT_EQ(rank_in_name("job42_Rank-3_v2.pickle"), 3);
  EXPECT_EQ(rank_in_name("trace3.json"), 3);
  EXPECT_EQ(rank_in_name("5"), 5);
  EXPECT_EQ(rank_in_name("nccl.pickle"), std::nullopt);
  EXPECT_EQ(rank_in_name("rank"), std::nullopt);
  EXPECT_EQ(rank_in_name("rank_99999999999999999999"), std::nullopt);
}

TEST(FileRank, WithoutNumbersFilesAreRanksInTheirOrder) {
  EXPECT_THAT(ranks_of_files(Paths{"a/r9/x.json", "y.json"}), ElementsAre(0, 1));
  EXPECT_THAT(ranks_of_files(Paths{"x_4", "x_2"}), ElementsAre(4, 2));
  EXPECT_THAT(ranks_of_files(Paths{"x_4", "notes.md"}), ElementsAre(4, std::nullopt));
}

TEST(RanksWords, JoinsNeighbours) {
  EXPECT_EQ(ranks_words({3}), "rank 3");
  EXPECT_EQ(ranks_words({0, 1}), "ranks 0, 1");
  EXPECT_EQ(ranks_words({0, 1, 2, 5, 7, 8, 9}), "ranks 0-2, 5, 7-9");
}

}  // namespace
}  // namespace mfsdp::traces
