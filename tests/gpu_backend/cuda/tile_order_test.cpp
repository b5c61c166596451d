#include "gpu_backend/cuda/kernels/sm90a/tile_order.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <vector>

namespace mfsdp::cuda {
namespace {

RC_GTEST_PROP(TileOrder, HasEveryTileOnceAndLongestFirst, ()) {
  const int length = *rc::gen::inRange(1, 300);
  const int heads = *rc::gen::inRange(1, 40);
  const int batch = *rc::gen::inRange(1, 4);
  const TileOrder order(length, heads, batch);
  RC_ASSERT(order.length() == length);
  RC_ASSERT(order.size() == length * heads * batch);
  std::set<std::tuple<int, int, int>> seen;
  std::map<std::pair<int, int>, int> next;  // by head
  for (int at = 0; at < order.size(); ++at) {
    const AttentionTile tile = order[at];
    RC_ASSERT(tile.head >= 0 && tile.head < heads && tile.batch >= 0 && tile.batch < batch);
    RC_ASSERT(next[std::pair(tile.head, tile.batch)]++ == tile.index);
    RC_ASSERT(seen.insert({tile.index, tile.head, tile.batch}).second);
  }
}

/// Excess of the time over the ideal in which all of 132 SMs end at once. Each free SM takes the
/// next tile. A tile takes one unit per block of 64 queries, and one more.
double late(int seq, int heads, int batch) {
  const TileOrder order(seq / 128, heads, batch);
  std::priority_queue<int, std::vector<int>, std::greater<>> ends;
  for (int sm = 0; sm < 132; ++sm) ends.push(0);
  int all = 0;
  int last = 0;
  for (int at = 0; at < order.size(); ++at) {
    const int takes = 2 * (order.length() - order[at].index) + 1;
    const int end = ends.top() + takes;
    ends.pop();
    ends.push(end);
    all += takes;
    last = std::max(last, end);
  }
  return last / (all / 132.0) - 1;
}

TEST(TileOrder, NoSectionOfFewHeadsEndsLate) {
  for (const int seq : {1536, 2048, 2560, 3072, 4096, 5120, 6144, 8192})
    for (const int heads : {24, 28, 32, 40, 64})
      EXPECT_LE(late(seq, heads, 1), 0.1) << seq << " tokens, " << heads << " heads";
  EXPECT_LE(late(3072, 24, 1), 0.04);  // sections of ten heads, and one of four: 0.23
}

TEST(TileOrder, SectionsHaveAtMost256TilesWhereAHeadHasNoMore) {
  const TileOrder order(24, 32, 1);  // 10 heads at most: four sections of 8
  EXPECT_EQ(order[7].head, 7);
  EXPECT_EQ(order[8].head, 0);
  EXPECT_EQ(order[8].index, 1);
  EXPECT_EQ(order[8 * 24].head, 8);
  const TileOrder uneven(40, 28, 1);  // 6 at most: five sections, of 6, 6, 6, 5 and 5
  EXPECT_EQ(uneven[6 * 40 * 3].head, 18);
  EXPECT_EQ(uneven[6 * 40 * 3 + 5].head, 18);
  const TileOrder longest(512, 4, 2);  // a head each
  EXPECT_EQ(longest[512].head, 1);
  EXPECT_EQ(longest[4 * 512].batch, 1);
}

}  // namespace
}  // namespace mfsdp::cuda
