#include "verify/cpu/kernels/head_groups.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace mfsdp::kernels {
namespace {

// Two rows of four columns of queries, two of keys and two of values, for two ranks.
TEST(HeadGroups, HaveTheirQueriesThenKeysThenValues) {
  std::vector<float> rows(2 * 8);
  std::iota(rows.begin(), rows.end(), 0.0F);
  const HeadGroups groups{.rows = 2, .cols = 8, .key_cols = 2, .groups = 2};
  std::vector<float> parts(rows.size());
  split_heads(SplitHeads<float>{.groups = groups, .input = rows.data(), .output = parts.data()});
  EXPECT_EQ(parts, (std::vector<float>{0, 1, 4, 6, 8, 9, 12, 14, 2, 3, 5, 7, 10, 11, 13, 15}));
  std::vector<float> joined(rows.size());
  join_heads(JoinHeads<float>{.groups = groups, .input = parts.data(), .output = joined.data()});
  EXPECT_EQ(joined, rows);
}

TEST(HeadGroups, OfQueriesAloneAreConsecutiveColumns) {
  const std::vector<float> rows{0, 1, 2, 3, 4, 5, 6, 7};
  const HeadGroups groups{.rows = 2, .cols = 4, .key_cols = 0, .groups = 2};
  std::vector<float> parts(rows.size());
  split_heads(SplitHeads<float>{.groups = groups, .input = rows.data(), .output = parts.data()});
  EXPECT_EQ(parts, (std::vector<float>{0, 1, 4, 5, 2, 3, 6, 7}));
}

}  // namespace
}  // namespace mfsdp::kernels
